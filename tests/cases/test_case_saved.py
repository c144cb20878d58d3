"""What is saved once, and found again when a job is started again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from small_build import build

from graphpar.runtime import Mesh, simulate
from graphpar.runtime.checkpoint import Checkpoints
from graphpar.runtime.initialise import initialise
from graphpar.runtime.optimizer import adamw
from graphpar.runtime.plan import read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import read_settings
from graphpar.runtime.tape import read_tape


def checkpoints(folder: Path, mesh: Mesh, *, step: bool) -> Checkpoints:
    """Those of a run of the small tied GPT, which has done one step if `step`."""
    plan = read_plan(folder / "plan.json")
    spec = importlib.util.spec_from_file_location("saved_model", folder / "model.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.SmallGPT(mesh)
    initialise(model, plan, read_tape(folder / "init.json"), 3, mesh)
    settings = read_settings(plan, ["--data", "x", "--seq", "8", "--batch", "8", "--out", str(folder / "run")])
    optimizer = adamw(model, plan, settings)
    if step:
        for parameter in model.parameters():
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
    return Checkpoints(model, optimizer, plan, settings, mesh)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A build for two tensor ranks, with a checkpoint after one step."""
    build(tmp_path, tp=2)
    simulate({"dp": 1, "tp": 2}, lambda mesh: checkpoints(tmp_path, mesh, step=True).save(1))
    return tmp_path


def test_a_checkpoint_has_a_tied_tensor_once(saved: Path) -> None:
    for rank in range(2):
        state = torch.load(saved / "run" / "checkpoints" / "step-00000001" / f"rank-0000{rank}.pt")
        for kind in ("tensors", "moments"):
            assert "wte.weight" in state[kind] and "head.weight" not in state[kind]
        assert state["tensors"]["wte.weight"].shape == (49, 32)  # half of 97 rows, rounded up


def test_a_restarted_job_goes_on_without_being_asked(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted(mesh: Mesh) -> tuple[bool, int]:
        found = checkpoints(saved, mesh, step=False)
        return found.wanted(), found.resume()

    with pytest.raises(UsageError, match="give --resume to go on with it"):  # a person started it
        simulate({"dp": 1, "tp": 2}, wanted)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")  # torchrun started it again
    assert simulate({"dp": 1, "tp": 2}, wanted) == [(True, 1)] * 2
