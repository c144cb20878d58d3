"""A model written in a test: compiled, run on simulated ranks, and compared with itself on one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import yaml
from builds import Small, layout
from parity import Result, differences, module_of, part_of
from torch import Tensor, nn

from graphpar.capture.capture import Captured, Signature
from graphpar.check.check import check_program
from graphpar.compiler import Build, compile_captured
from graphpar.language.parse import parse_spec
from graphpar.runtime import GradientSums, Mesh, simulate
from graphpar.sources.captured import capture_source
from graphpar.sources.source import Source
from graphpar.verify.lift import LiftedCasts
from graphpar.verify.origin import doubled, nudged

ARGUMENTS = ("input_ids", "labels")
TENSOR = ("heads tp", "d_ff tp", "vocab tp")
TP2_SP = layout({"tp": 2}, *TENSOR, "seq tp")
TP2 = layout({"tp": 2}, *TENSOR)
DP2 = layout({"dp": 2}, "batch dp")
DP4 = layout({"dp": 4}, "batch dp")
DP2_TP2 = layout({"dp": 2, "tp": 2}, "batch dp", *TENSOR)


@dataclass(frozen=True)
class Written:
    """A model of ids and labels, vocabulary 32; what is made of it is made once."""

    construct: Callable[[], nn.Module]

    @cached_property
    def captured(self) -> Captured:
        """The graph of the loss. Raises GraphparError if the model is refused."""
        source = Source("written", "Written", "file", "Written", (), lambda: self.construct().train(), self.signature)
        return capture_source(source)

    signature = Signature(ARGUMENTS, {})

    @cached_property
    def source(self) -> nn.Module:
        """The module with weights that no symmetry hides anything in, without dropout."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nudged(self.construct().eval(), 0)

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """Its parameters and buffers."""
        named = (*self.source.named_parameters(), *self.source.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in named}

    def compiled(self, document: Mapping[str, Any]) -> Build:
        """The build for a layout. Raises GraphparError if it is refused."""
        spec = parse_spec(yaml.safe_dump(dict(document), sort_keys=False), "spec.yaml")
        return compile_captured(self.captured, spec, {"model": "written", "spec_file": "spec.yaml"})

    def alone(self, batch: Mapping[str, Tensor]) -> Result:
        """What the source computes on one device, in float64."""
        model = doubled(self.source)
        with LiftedCasts():
            loss = model(**batch)
            loss.backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        return Result(loss.detach(), torch.stack([g.norm() for g in gradients.values()]).norm(), gradients, {})

    def holds(self, document: Mapping[str, Any], batch: Mapping[str, Tensor] | None = None) -> Build:
        """Assert that the build of this layout is proven, and computes what the source computes; return it."""
        build = self.compiled(document)
        assert check_program(build.files["model.py"], build.plan) == []
        assert differences(build, Compared(self, batch or plain())) == {}
        return build


@dataclass(frozen=True)
class Compared:
    """A model and a batch, as the comparison wants them."""

    model: Written
    batch: Mapping[str, Tensor]

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """The model's."""
        return self.model.weights

    def reference(self) -> Result:
        """What the ranks are compared with."""
        return self.model.alone(self.batch)


def plain() -> dict[str, Tensor]:
    """Ids and labels of 4 rows of 12 tokens, the labels unevenly ignored."""
    return Small("").batch(1)


def with_labels(*counts: int, length: int = 16, seed: int = 0) -> dict[str, Tensor]:
    """Rows of tokens with so many labels each, at the start; the others are ignored."""
    random = torch.Generator().manual_seed(seed)
    ids, labels = torch.randint(32, (2, len(counts), length), generator=random)
    for row, count in enumerate(counts):
        labels[row, count:] = -100
    return {"input_ids": ids, "labels": labels}


def accumulated(build: Build, weights: Mapping[str, Tensor], microbatches: list[dict[str, Tensor]]) -> list[Result]:
    """One step over several microbatches on each rank of a build that cuts rows over `dp`, in the order of train.py."""
    module, plan = module_of(build), build.plan

    def rank(mesh: Mesh) -> Result:
        at = {axis: mesh.coordinate(axis) for axis in plan["mesh"]}
        model = getattr(module, plan["class"])(mesh).double().eval()
        own = dict(model.named_parameters()) | dict(model.named_buffers())
        with torch.no_grad():
            for name, entry in {**plan["parameters"], **plan["buffers"]}.items():
                own[name].copy_(part_of(weights[name], entry["dims"], plan["mesh"], at))
        ways, place = plan["mesh"]["dp"], at["dp"]
        parts = [{name: x.chunk(ways)[place] for name, x in batch.items()} for batch in microbatches]
        count = mesh["dp"].all_reduce(torch.stack([model.count(**part) for part in parts]).sum())
        sums, total = GradientSums(model, mesh), torch.zeros((), dtype=torch.float64)
        for index, part in enumerate(parts):
            share = model(**part, count=count)
            with sums.last_microbatch() if index == len(parts) - 1 else nullcontext():
                share.backward()
            total += share.detach()
        sums.finish()
        gradients = {name: own[name].grad.clone() for name in plan["parameters"]}
        return Result(mesh["dp"].all_reduce(total), torch.zeros(()), gradients, at)

    return simulate(plan["mesh"], rank)
