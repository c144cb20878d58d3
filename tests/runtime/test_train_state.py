"""Initial values, weights and checkpoints on simulated ranks: any mesh holds the one model."""

import hashlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch
from small_build import build
from small_gpt import SmallGPT
from torch import Tensor

from graphpar.runtime import Mesh, simulate
from graphpar.runtime.checkpoint import Checkpoints
from graphpar.runtime.initialise import held_tensors, initialise, load
from graphpar.runtime.optimizer import adamw
from graphpar.runtime.plan import PlanError, read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import read_settings
from graphpar.runtime.tape import read_tape
from graphpar.runtime.tensor_file import TensorFile
from graphpar.runtime.weights import save_weights
from graphpar.runtime.whole import ReplicaError, gather_full, require_equal_replicas

MESHES = [(1, 1), (2, 1), (1, 2), (2, 2), (1, 4)]


class Build:
    """A build folder, loaded."""

    def __init__(self, folder: Path, dp: int, tp: int) -> None:
        build(folder, dp=dp, tp=tp)
        self.folder = folder
        self.plan = read_plan(folder / "plan.json")
        self.tape = read_tape(folder / "init.json")
        spec = importlib.util.spec_from_file_location("small_built_model", folder / "model.py")
        assert spec is not None and spec.loader is not None
        self.module: ModuleType = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)

    def model(self, mesh: Mesh) -> Any:
        return self.module.SmallGPT(mesh)

    def filled(self, mesh: Mesh, seed: int = 3) -> Any:
        model = self.model(mesh)
        initialise(model, self.plan, self.tape, seed, mesh)
        return model

    def on_ranks(self, fn: Callable[[Mesh], Any]) -> list[Any]:
        return simulate(self.plan.mesh, fn)


@pytest.fixture
def built(tmp_path: Path) -> Callable[..., Build]:
    return lambda dp=1, tp=1: Build(tmp_path / f"build-{dp}-{tp}", dp, tp)


def source(seed: int = 3) -> SmallGPT:
    torch.manual_seed(seed)
    return SmallGPT()


@pytest.mark.parametrize(("dp", "tp"), MESHES)
def test_initial_values_are_the_sources_whatever_the_mesh(built: Callable[..., Build], dp: int, tp: int) -> None:
    here = built(dp, tp)

    def whole(mesh: Mesh) -> dict[str, Tensor]:
        held = held_tensors(here.filled(mesh), here.plan)
        return {name: gather_full(held[name], stored, mesh) for name, stored in here.plan.stored.items()}

    expected = {**dict(source().named_parameters()), **dict(source().named_buffers())}
    for found in here.on_ranks(whole):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("dp", "tp"), MESHES)
def test_saved_weights_load_into_the_source_model(built: Callable[..., Build], dp: int, tp: int) -> None:
    here = built(dp, tp)
    path = here.folder / "model.safetensors"
    here.on_ranks(lambda mesh: save_weights(path, here.filled(mesh), here.plan, here.tape, mesh))

    model = source(seed=4)
    model.load_state_dict(safetensors.torch.load_file(path), strict=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), source().parameters(), strict=True))

    file = TensorFile(path)
    assert file.shape("wte.weight") == (97, 32)
    assert torch.equal(file.read("head.weight"), file.read("wte.weight"))  # tied, under both names


def test_weights_of_one_mesh_start_another(built: Callable[..., Build]) -> None:
    one, other = built(1, 2), built(2, 2)
    path = one.folder / "model.safetensors"
    one.on_ranks(lambda mesh: save_weights(path, one.filled(mesh), one.plan, one.tape, mesh))

    def loaded(mesh: Mesh) -> bool:
        model = other.model(mesh)
        load(model, other.plan, other.tape, path, mesh)
        held, expected = held_tensors(model, other.plan), held_tensors(other.filled(mesh), other.plan)
        return all(torch.equal(held[name], expected[name]) for name in expected)

    assert all(other.on_ranks(loaded))


def altered(state: dict[str, Tensor], **changes: Tensor | None) -> dict[str, Tensor]:
    state = {**state, **{key.replace("__", "."): value for key, value in changes.items()}}
    return {name: value.clone() for name, value in state.items() if value is not None}


def load_state(here: Build, state: dict[str, Tensor]) -> None:
    path = here.folder / "some.safetensors"
    safetensors.torch.save_file(state, path)
    here.on_ranks(lambda mesh: load(here.model(mesh), here.plan, here.tape, path, mesh))


def test_a_tied_tensor_may_stand_under_any_of_its_names(built: Callable[..., Build]) -> None:
    here, state = built(1, 2), source().state_dict()
    load_state(here, altered(state))
    load_state(here, altered(state, wte__weight=None))
    load_state(here, altered(state, head__weight=None))
    with pytest.raises(UsageError, match=r"different values for wte\.weight and head\.weight, which the model ties"):
        load_state(here, altered(state, head__weight=torch.zeros(97, 32)))


def test_files_that_do_not_fit_are_refused_with_the_keys(built: Callable[..., Build]) -> None:
    here, state = built(1, 1), source().state_dict()
    with pytest.raises(UsageError, match=r"missing in the file: ln_f\.bias, scale; not in the model: extra"):
        load_state(here, altered(state, ln_f__bias=None, scale=None, extra=torch.zeros(1)))
    with pytest.raises(UsageError, match=r"wpe\.weight should have shape \(16, 32\), not \(8, 32\)"):
        load_state(here, altered(state, wpe__weight=torch.zeros(8, 32)))
    with pytest.raises(UsageError, match="does not exist"):
        here.on_ranks(lambda mesh: load(here.model(mesh), here.plan, here.tape, here.folder / "no.safetensors", mesh))


def test_a_parameter_that_nobody_fills_is_named(built: Callable[..., Build]) -> None:
    here = built(1, 1)
    del here.tape.state["wpe.weight"]
    with pytest.raises(PlanError, match=r"does not say how wpe\.weight gets its values"):
        here.on_ranks(here.filled)


def test_replicas_that_drift_apart_are_named_on_every_rank(built: Callable[..., Build]) -> None:
    here = built(2, 2)
    said: list[str] = []

    def drift(mesh: Mesh) -> None:
        model = here.filled(mesh)
        if mesh.rank == 3:
            with torch.no_grad():
                model.ln_f.bias[0] += 1e-9
                model.wte.weight[0, 0] += 1e-3
        with pytest.raises(ReplicaError) as caught:
            require_equal_replicas(held_tensors(model, here.plan), here.plan.stored, mesh)
        said.append(str(caught.value))

    here.on_ranks(drift)
    assert set(said) == {"ranks that hold the same part of wte.weight, ln_f.bias hold different values"}
    assert len(said) == 4


class Run:
    """Two steps of training with made-up gradients, and the checkpoints of it."""

    def __init__(self, here: Build, mesh: Mesh, line: str = "", *, fill: bool = True) -> None:
        self.mesh = mesh
        arguments = ["--data", "x", "--seq", "8", "--batch", "8", "--out", str(here.folder / "run"), *line.split()]
        self.model = here.filled(mesh) if fill else here.model(mesh)
        settings = read_settings(here.plan, arguments)
        self.optimizer = adamw(self.model, here.plan, settings)
        self.checkpoints = Checkpoints(self.model, self.optimizer, here.plan, settings, mesh)

    def step(self, number: int) -> None:
        for index, parameter in enumerate(self.model.parameters()):
            parameter.grad = torch.full_like(parameter, 0.1 * number - 0.01 * index)
        self.optimizer.step()

    def tensors(self) -> list[Tensor]:
        states = [self.optimizer.state[parameter] for parameter in self.model.parameters()]
        moments = [state[key] for state in states for key in sorted(state)]
        return [tensor.detach().clone() for tensor in [*self.model.parameters(), *moments]]


def saved(here: Build, *steps: int) -> list[list[Tensor]]:
    """Train to the last of `steps`, save at each; what the ranks hold in the end."""

    def train(mesh: Mesh) -> list[Tensor]:
        run = Run(here, mesh)
        for number in range(1, steps[-1] + 1):
            run.step(number)
            if number in steps:
                run.checkpoints.save(number)
        return run.tensors()

    return here.on_ranks(train)


def resumed(here: Build, line: str = "--resume") -> list[SimpleNamespace]:
    def again(mesh: Mesh) -> SimpleNamespace:
        run = Run(here, mesh, line, fill=False)
        assert run.checkpoints.wanted()
        return SimpleNamespace(steps=run.checkpoints.resume(), tensors=run.tensors(), run=run)

    return here.on_ranks(again)


def test_a_resumed_run_continues_bit_for_bit(built: Callable[..., Build]) -> None:
    here = built(2, 2)
    saved(here, 2)
    expected = saved(here, 3)
    (here.folder / "run" / "checkpoints" / "latest").write_text("step-00000002")

    def go_on(mesh: Mesh) -> list[Tensor]:
        run = Run(here, mesh, "--resume", fill=False)
        assert run.checkpoints.resume() == 2
        run.step(3)
        return run.tensors()

    for found, rank in zip(here.on_ranks(go_on), expected, strict=True):
        assert len(found) == len(rank) > 3
        assert all(torch.equal(a, b) for a, b in zip(found, rank, strict=True))


def test_the_newest_two_checkpoints_are_kept(built: Callable[..., Build]) -> None:
    here = built(1, 2)
    saved(here, 1, 2, 3)
    names = sorted(path.name for path in (here.folder / "run" / "checkpoints").iterdir())
    assert names == ["latest", "step-00000002", "step-00000003"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: (folder / "manifest.json").unlink(),
        lambda folder: (folder / "rank-00001.pt").unlink(),
        lambda folder: (folder / "rank-00001.pt").write_bytes((folder / "rank-00001.pt").read_bytes()[:-1]),
        lambda folder: (folder / "rank-00000.pt").write_bytes(b"x" * (folder / "rank-00000.pt").stat().st_size),
    ],
)
def test_an_incomplete_checkpoint_is_passed_over(built: Callable[..., Build], harm: Callable[[Path], Any]) -> None:
    here = built(1, 2)
    saved(here, 1, 2)
    harm(here.folder / "run" / "checkpoints" / "step-00000002")
    assert [found.steps for found in resumed(here)] == [1, 1]


def test_a_killed_save_leaves_the_last_checkpoint_and_can_be_repeated(built: Callable[..., Build]) -> None:
    here = built(1, 2)
    saved(here, 1)
    left = here.folder / "run" / "checkpoints" / ".unfinished"
    left.mkdir()
    (left / "rank-00001.pt").write_bytes(b"half")
    assert resumed(here)[0].steps == 1
    saved(here, 2)
    assert not left.exists()
    assert resumed(here)[0].steps == 2


def test_a_checkpoint_of_something_else_is_refused(built: Callable[..., Build], tmp_path: Path) -> None:
    one, other = built(1, 2), built(2, 1)
    saved(one, 1)
    (one.folder / "run").rename(other.folder / "run")
    with pytest.raises(
        UsageError, match=r"is of mesh dp=1 x tp=2, this program of dp=2 x tp=1; start from its weights"
    ):
        resumed(other)
    (other.folder / "run").rename(one.folder / "run")
    with pytest.raises(UsageError, match="--batch is 16, but checkpoint step-00000001 was written with 8"):
        resumed(one, "--resume --batch 16")
    with pytest.raises(UsageError, match=r"holds a run that has come to step-00000001; give --resume"):
        resumed(one, "")


def test_resuming_from_nothing_is_refused(built: Callable[..., Build]) -> None:
    with pytest.raises(UsageError, match="no complete checkpoint in"):
        resumed(built(1, 1))


def test_a_missing_moment_is_named(built: Callable[..., Build]) -> None:
    here = built(1, 1)
    saved(here, 1)
    folder = here.folder / "run" / "checkpoints" / "step-00000001"
    state = torch.load(folder / "rank-00000.pt")
    del state["moments"]["wpe.weight"]["exp_avg"]
    torch.save(state, folder / "rank-00000.pt")
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (folder / "rank-00000.pt").read_bytes()
    manifest["files"]["rank-00000.pt"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(UsageError, match=r"has no exp_avg of wpe\.weight"):
        resumed(here)


def test_drifted_replicas_are_not_saved(built: Callable[..., Build]) -> None:
    here = built(2, 1)

    def drift(mesh: Mesh) -> None:
        run = Run(here, mesh)
        with torch.no_grad():
            run.model.ln_f.weight[0] += mesh.rank
        run.checkpoints.save(1)

    with pytest.raises(ReplicaError, match=r"ln_f\.weight"):
        here.on_ranks(drift)
    assert not (here.folder / "run").exists()
