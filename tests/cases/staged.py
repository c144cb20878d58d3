"""A model written in a test, in the stages of a pipeline: compiled, and trained for some steps on simulated ranks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from builds import layout
from torch import Tensor
from written import Written

from graphpar.check.check import check_program
from graphpar.check.schedule import check_schedule
from graphpar.runtime import Mesh, simulate
from graphpar.runtime.data import Batches
from graphpar.runtime.loss import held_out_loss, matmul_precision, over_data
from graphpar.runtime.norms import clip
from graphpar.runtime.optimizer import adamw
from graphpar.runtime.settings import read_settings
from graphpar.verify.program import Batch, Program, read_program
from graphpar.verify.runs import Run, microbatches
from graphpar.verify.steps import CLIP, settings

ALONE = layout({"dp": 1}, "batch dp")


@dataclass(frozen=True)
class Update:
    """One step on one rank: the loss, the norm before clipping, the gradients, and the parameters after it."""

    loss: Tensor
    norm: Tensor
    gradients: dict[str, Tensor]
    parameters: dict[str, Tensor]


def staged(ranks: int = 2, schedule: str = "1f1b", microbatches: int = 2, dp: int = 1, **words: Any) -> dict[str, Any]:
    """A spec with a pipeline of `ranks` ranks, on each of `dp` data ranks."""
    pipeline = {"axis": "pp", "schedule": schedule, "microbatches": microbatches, **words}
    return layout({"pp": ranks, "dp": dp}, *(["batch dp"] if dp > 1 else []), pipeline=pipeline)


def program(model: Written, document: dict[str, Any]) -> Program:
    """What is compiled, and proven as `graphpar check` does."""
    build = model.compiled(document)
    assert check_program(build.files["model.py"], build.plan) == []
    if "schedule.csv" in build.files:
        assert check_schedule(build.files["schedule.csv"], build.plan) == []
    with tempfile.TemporaryDirectory() as folder:
        build.write(Path(folder))
        return read_program(Path(folder))


def updates(model: Written, made: Program, batches: Sequence[Batch]) -> list[list[Update]]:
    """For each rank, what each step gave: float64, clipped at far less than the norm."""
    rows, length = next(iter(batches[0].values())).shape
    pieces = len(microbatches(made, batches[0]))

    def rank(mesh: Mesh) -> list[Update]:
        module = made.model(mesh, model.weights, torch.float64)
        optimizer = adamw(module, made.plan, settings(made.plan, rows // pieces, length, pieces))
        run, named, found = Run(made, mesh, module), dict(module.named_parameters()), []
        for batch in batches:
            loss = over_data(run.step(microbatches(made, batch)).double(), made.plan, mesh)
            gradients = {n: p.grad.clone() for n, p in named.items() if p.grad is not None}
            norm = clip(module, mesh, CLIP)
            optimizer.step()
            optimizer.zero_grad()
            found.append(Update(loss, norm, gradients, {n: p.detach().clone() for n, p in named.items()}))
        return found

    return simulate(made.mesh, rank, timeout=60)


def assert_same(found: Sequence[Sequence[Update]], expected: Sequence[Update]) -> None:
    """Every rank's steps are those of one device, at 1e-9; together the ranks hold every parameter."""
    assert {n for rank in found for n in rank[0].parameters} == set(expected[0].parameters)
    for rank in found:
        for step, wanted in zip(rank, expected, strict=True):
            torch.testing.assert_close(step.loss, wanted.loss, rtol=1e-9, atol=0)
            torch.testing.assert_close(step.norm, wanted.norm, rtol=1e-9, atol=0)
            for kind in ("gradients", "parameters"):
                for name, tensor in getattr(step, kind).items():
                    whole = getattr(wanted, kind)[name]
                    # a gradient that is zero by mathematics is measured against the others
                    size = max(float(whole.abs().max()), 1e-3 * float(wanted.norm))
                    assert float((tensor - whole).abs().max()) <= 1e-9 * size, f"{kind}: {name}"


def holds(model: Written, document: dict[str, Any], batches: Sequence[Batch]) -> tuple[Program, list[list[Update]]]:
    """Assert that a model trains in stages as it does on one device. The program, and what each rank did."""
    made = program(model, document)
    found = updates(model, made, batches)
    (expected,) = updates(model, program(model, ALONE), batches)
    loss = model.alone(batches[0]).loss
    torch.testing.assert_close(expected[0].loss, loss, rtol=1e-9, atol=0)  # and that is the source
    assert_same(found, expected)
    return made, found


def read(model: Written, made: Program, tokens: Tensor, rows: int, steps: int) -> list[list[float]]:
    """For each rank, the loss of some steps on a text, without updates, and then the held-out loss, as train.py does.

    A step has `rows` rows of 16 tokens in two microbatches, with or without a pipeline.
    """
    words = f"--data none --seq 16 --batch {rows} --accumulate 2 --steps {steps} --eval-batches 9"
    given = read_settings(made.plan, words.split())

    def rank(mesh: Mesh) -> list[float]:
        module = made.model(mesh, model.weights, torch.float64)
        batches, run = Batches(tokens, made.plan, given, mesh), Run(made, mesh, module)
        losses = [over_data(run.step(batches.training(step)).double(), made.plan, mesh).item() for step in range(steps)]
        precision = matmul_precision("fp32", mesh.device)
        return [*losses, held_out_loss(module, batches.evaluation, made.plan, mesh, precision, run.pipeline)]

    return simulate(made.mesh, rank, timeout=60)
