"""Forwards that are run again in the backward pass: the same numbers, with fewer of them kept."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from compiled_zoo import compiled, origin, parsed, told, verified

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.runtime.random import Randomness
from graphpar.runtime.simulate import simulate
from graphpar.verify.origin import nudged, values
from graphpar.verify.program import read_program
from graphpar.verify.steps import Dropout, Step, drop, one_step
from graphpar.verify.verify import Options

TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
PIPELINE = {"axis": "pp", "schedule": "1f1b", "microbatches": 2}
WHOLE = [{"at": "layers[*]", "recompute": True}]
CORE = [{"at": "layers", "recompute": "selective"}]
MIXED = [{"at": "layers[0]", "recompute": "selective"}, {"at": "layers[1:].mlp", "recompute": True}]


def spec(mesh: dict[str, int], layout: list[dict[str, Any]], regions: list[dict[str, Any]], **more: Any) -> Any:
    return {"version": 1, "mesh": mesh, "layout": layout, "uneven": {"vocab": "pad"}, "regions": regions, **more}


CASES = {
    "nanogpt, whole": ("nanogpt", spec({"dp": 2, "tp": 2}, [{"batch": "dp"}, *TENSOR, {"seq": "tp"}], WHOLE)),
    "nanogpt_manual, core": ("nanogpt_manual", spec({"tp": 2}, TENSOR, CORE)),
    "gemma2, mixed in stages": ("gemma2", spec({"pp": 2, "tp": 2}, TENSOR, MIXED, pipeline=PIPELINE)),
    "gpt2, whole in stages": ("gpt2", spec({"pp": 2, "dp": 2}, [{"batch": "dp"}], WHOLE, pipeline=PIPELINE)),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_changes(case: str, tmp_path: Path):
    """Loss, gradients, updates and collectives, those that run again included."""
    model, document = CASES[case]
    report = verified(model, document, tmp_path, Options(capture=False))
    assert report.passed, told(report)


def stepped(document: Any, folder: Path) -> tuple[list[Step], int]:
    """A step with dropout on, and the bytes that the first rank keeps for its backward."""
    compiled("nanogpt_manual", document, folder)
    program = read_program(folder)
    held = values(nudged(origin("nanogpt_manual").build(0), 0))
    dropout = Dropout(3, "statistical")
    kept = [0]

    def pack(x: torch.Tensor) -> torch.Tensor:
        kept[0] += x.nbytes
        return x

    def run(mesh: Any) -> Step:
        model = program.model(mesh, held, torch.float64)
        drop(mesh, model, dropout)
        counted = torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x) if mesh.rank == 0 else nullcontext()
        with counted:
            return one_step(program, mesh, model, batch(program), dropout)

    return simulate(program.mesh, run), kept[0]


def batch(program: Any) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return {entry.name: torch.randint(0, 40, (4, 16), generator=draw) for entry in program.plan.inputs}


@pytest.mark.parametrize("regions", [WHOLE, CORE], ids=["whole", "core"])
def test_the_same_is_dropped_again_and_less_is_kept(regions: list[dict[str, Any]], tmp_path: Path):
    plain, much = stepped(spec({"dp": 1, "tp": 2}, TENSOR, []), tmp_path / "plain")
    again, less = stepped(spec({"dp": 1, "tp": 2}, TENSOR, regions), tmp_path / "again")
    assert less < (0.35 if regions is WHOLE else 0.95) * much  # the model is short: pairs of positions are few
    for one, other in zip(plain, again, strict=True):
        assert torch.equal(one.loss, other.loss)
        assert all(torch.equal(gradient, other.gradients[name]) for name, gradient in one.gradients.items())


def test_another_mask_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Randomness, "replay", lambda self: (nullcontext(), nullcontext()))
    report = verified("nanogpt_manual", CASES["nanogpt_manual, core"][1], tmp_path, Options(capture=False))
    assert [check.name for check in report.failures] == ["with dropout: masks"]
    assert "when it runs a forward again" in report.failures[0].detail


REFUSED = {
    "nothing there": (
        spec({"tp": 2}, TENSOR, [{"at": "op:sdpa", "recompute": True}]),
        "nothing-to-recompute",
        "`op:sdpa` selects no module",
    ),
    "no attention": (
        spec({"tp": 2}, TENSOR, [{"at": "layers[*].mlp", "recompute": "selective"}]),
        "nothing-to-recompute",
        "`layers[*].mlp` selects no attention",
    ),
    "halves": (
        spec({"pp": 2}, [], WHOLE, pipeline={**PIPELINE, "schedule": "zbv"}),
        "recompute-in-halves",
        "`recompute` is not available with `zbv`",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_run_again_is_refused(case: str):
    document, code, message = REFUSED[case]
    with pytest.raises(GraphparError) as refused:
        compile_captured(origin("nanogpt").captured, parsed(document), {"model": "nanogpt", "spec_file": "spec.yaml"})
    (found,) = refused.value.diagnostics
    assert found.code == code
    assert message in found.message
