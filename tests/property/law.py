"""The law for one model and one layout: refused with a diagnostic, or proven and equal to one device."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import yaml
from choices import Choices
from drawn import Decoder
from torch import Tensor, nn

from graphpar.capture.capture import Captured, Signature
from graphpar.check.check import check_program
from graphpar.compiler import Build, compile_captured
from graphpar.errors import GraphparError
from graphpar.language.parse import parse_spec
from graphpar.sources.captured import capture_source
from graphpar.sources.source import Source
from graphpar.verify.lift import LiftedCasts
from graphpar.verify.origin import doubled, nudged
from specs import LENGTH, ROWS, Document

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
import parity

SECONDS = 60  # for one model or one layout: more is a hang
ARGUMENTS = ("input_ids", "labels")


@dataclass(frozen=True)
class Drawn:
    """A model of some choices; what is computed from it is computed once for all its layouts."""

    choices: Choices

    def build(self) -> nn.Module:
        """The module as its author wrote it."""
        return Decoder(self.choices)

    @cached_property
    def captured(self) -> Captured:
        """The graph of the loss. Raises GraphparError if the model is refused."""
        path = Path(__file__).parent / "drawn.py"
        signature = Signature(ARGUMENTS, {})
        return capture_source(Source("drawn", "Decoder", "file", "Decoder", (path,), self.build, signature))

    @cached_property
    def batch(self) -> Mapping[str, Tensor]:
        """Ids and labels, the labels unevenly ignored."""
        random = torch.Generator().manual_seed(1)
        ids, labels = torch.randint(self.choices.vocab, (2, ROWS, LENGTH), generator=random)
        for row in range(1, ROWS):
            labels[row, LENGTH - 2 * row :] = -100
        return dict(zip(ARGUMENTS, (ids, labels)))

    @cached_property
    def source(self) -> nn.Module:
        """The module with weights that no symmetry hides anything in, without dropout."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return nudged(self.build().eval(), 0)

    @cached_property
    def weights(self) -> Mapping[str, Tensor]:
        """Its parameters and buffers."""
        named = (*self.source.named_parameters(), *self.source.named_buffers())
        return {name: tensor.detach().clone() for name, tensor in named}

    @cached_property
    def eager(self) -> parity.Result:
        """What the source itself computes on one device, all of it in float64."""
        model = doubled(self.source)
        with LiftedCasts():
            loss = model(**self.batch)
            loss.backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        norm = torch.stack([g.norm() for g in gradients.values()]).norm()
        return parity.Result(loss.detach(), norm, gradients, {})

    def reference(self) -> parity.Result:
        """What the ranks are compared with."""
        return self.eager

    def compiled(self, document: Document) -> Build:
        """The build for a layout. Raises GraphparError if the layout is refused."""
        spec = parse_spec(yaml.safe_dump(document, sort_keys=False), "spec.yaml")
        return compile_captured(self.captured, spec, {"model": "drawn", "spec_file": "spec.yaml"})


def refusal(model: Drawn, document: Document) -> str | None:
    """Why the layout is refused, or None if it computes what one device computes. Raises AssertionError otherwise."""
    with within(SECONDS):
        try:
            build = model.compiled(document)
        except GraphparError as error:
            return " ".join(sorted({d.code for d in error.diagnostics}))
    with within(SECONDS):
        found = [f"{f.line}: {f.message}" for f in check_program(build.files["model.py"], build.plan)]
        differences = parity.differences(build, model)
        assert not found and not differences, (found, differences)
    return None


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Raises TimeoutError in the main thread if its body takes longer."""

    def late(number: int, frame: FrameType | None) -> Any:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
