"""The source model, in float64 as well, and the program that the compiler makes of it for one device."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.capture.capture import Captured, Signature, capture
from graphpar.compiler import compile_captured
from graphpar.language.schema import Spec
from graphpar.verify.program import Batch, Program, read_program

NUDGE = 0.05  # added noise: initial biases are zeros and initial norms ones, which would hide mistakes


@dataclass(frozen=True)
class Origin:
    """How to build the model that was compiled, and how it is called."""

    construct: Callable[[], nn.Module]
    signature: Signature

    @cached_property
    def captured(self) -> Captured:
        """The captured graph; takes seconds, once."""
        return capture(self.construct, self.signature)

    def build(self, seed: int) -> nn.Module:
        """The module that this seed gives, with dropout off. Leaves the caller's generator alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.construct().eval()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The training loss of a module of this source."""
        output = model(**{name: x.clone() for name, x in batch.items()}, **self.signature.constants)
        return next(x for x in _tensors(output) if x.dim() == 0 and x.is_floating_point())


def nudged(model: nn.Module, seed: int) -> nn.Module:
    """The same module with noise on every parameter."""
    random = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for p in model.parameters():
            p.add_((torch.randn(p.shape, generator=random) * NUDGE).to(p.dtype))
    return model


def doubled(model: nn.Module) -> nn.Module:
    """A copy in float64, to be run under `LiftedCasts`."""
    return copy.deepcopy(model).double()


def values(model: nn.Module) -> dict[str, Tensor]:
    """Copies of every parameter and buffer, each once, under its first name."""
    named: dict[str, Tensor] = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {name: tensor.detach().clone() for name, tensor in named.items()}


@contextmanager
def one_device(origin: Origin, spec: Spec, described: Mapping[str, Any]) -> Iterator[Program]:
    """The program that the compiler writes for the same spec with every mesh axis of size 1: no collectives."""
    build = compile_captured(origin.captured, of_ones(spec), described)
    with tempfile.TemporaryDirectory(prefix="graphpar-") as folder:
        build.write(Path(folder))
        yield read_program(Path(folder))


def of_ones(spec: Spec) -> Spec:
    """The spec on a mesh of one device, which has no stages."""
    return replace(
        spec, pipeline=None, mesh=replace(spec.mesh, axes=tuple(replace(axis, size=1) for axis in spec.mesh.axes))
    )


def dropless(spec: Spec) -> Spec:
    """The spec without a capacity of experts: what it makes of a model computes what the model does."""
    return replace(spec, moe=spec.moe and replace(spec.moe, tokens="dropless", capacity_factor=None, group=None))


def _tensors(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)
