"""Initial values, checkpoints, weights and settings of a pipeline: ranks hold parts, files hold the whole model."""

import dataclasses
import json

import pytest
import safetensors.torch
import torch
from pipelined_gpt import Cut, Source
from recorded import recorded

from graphpar.runtime import simulate
from graphpar.runtime.checkpoint import Checkpoints
from graphpar.runtime.initialise import check_values, held_tensors, initialise, load
from graphpar.runtime.optimizer import adamw
from graphpar.runtime.plan import PlanError, read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import read_settings
from graphpar.runtime.sizes import size
from graphpar.runtime.tape import read_tape
from graphpar.runtime.weights import save_weights
from graphpar.runtime.whole import ReplicaError

TAPE = recorded(lambda: Source(4))[0]


class Build:
    def __init__(self, folder, name="1f1b", ranks=2, virtual=1, **how):
        self.cut = Cut(name, ranks, virtual, 4, layers=4, **how)
        self.folder = self.cut.build(folder, TAPE)
        self.plan, self.tape = read_plan(folder / "plan.json"), read_tape(folder / "init.json")

    def filled(self, mesh, seed=3):
        model = self.cut.model(mesh)
        initialise(model, self.plan, self.tape, seed, mesh)
        return model

    def on_ranks(self, fn):
        return simulate(self.cut.sizes, fn)

    def save(self, path, seed=3):
        self.on_ranks(lambda mesh: save_weights(path, self.filled(mesh, seed), self.plan, self.tape, mesh))
        return safetensors.torch.load_file(path)


def source(seed=3):
    torch.manual_seed(seed)
    return Source(4)


@pytest.mark.parametrize("how", [{}, {"ranks": 4}, {"name": "zbv", "virtual": 2}, {"dp": 2}, {"tp": 2}], ids=str)
def test_saved_weights_are_the_whole_model_as_the_source_has_it(tmp_path, how):
    here = Build(tmp_path, **how)
    state = here.save(tmp_path / "model.safetensors")
    model = source(seed=4)
    model.load_state_dict(state, strict=True)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), source().parameters()))
    held = here.on_ranks(lambda mesh: set(held_tensors(here.filled(mesh), here.plan)))
    assert set.union(*held) == set(here.plan.stored)
    assert any(names < set(here.plan.stored) for names in held)


def test_the_file_has_the_dtype_of_the_tensors_whichever_rank_writes(tmp_path):
    here = Build(tmp_path)
    path = tmp_path / "model.safetensors"
    here.on_ranks(lambda mesh: save_weights(path, here.filled(mesh).double(), here.plan, here.tape, mesh))
    assert {tensor.dtype for tensor in safetensors.torch.load_file(path).values()} == {torch.float64}


def test_weights_of_one_cut_start_another(tmp_path):
    one, other = Build(tmp_path / "one"), Build(tmp_path / "other", "zbv", 2, 2)
    one.save(tmp_path / "model.safetensors")

    def loaded(mesh):
        model = other.cut.model(mesh)
        load(model, other.plan, other.tape, tmp_path / "model.safetensors", mesh)
        held, expected = held_tensors(model, other.plan), held_tensors(other.filled(mesh), other.plan)
        return all(torch.equal(held[name], expected[name]) for name in expected)

    assert all(other.on_ranks(loaded))


def test_tied_copies_that_drift_apart_are_named_on_every_rank(tmp_path):
    here = Build(tmp_path, ranks=4)
    said = []

    def drift(mesh):
        model = here.filled(mesh)
        if mesh.rank == 3:
            with torch.no_grad():
                dict(model.named_parameters())["wte.weight"][0, 0] += 1e-3
        with pytest.raises(ReplicaError) as caught:
            check_values(model, here.plan, mesh)
        said.append(str(caught.value))

    here.on_ranks(drift)
    assert said == ["ranks that hold the same part of wte.weight hold different values"] * 4


def test_a_stage_that_holds_what_the_plan_gives_another_is_named(tmp_path):
    here = Build(tmp_path)
    wpe = here.plan.parameters["wpe.weight"]
    moved = dataclasses.replace(wpe, owners=dataclasses.replace(wpe.owners, coordinates=(1,)))
    here.plan = dataclasses.replace(here.plan, parameters={**here.plan.parameters, "wpe.weight": moved})
    with pytest.raises(PlanError, match=r"model\.py and plan\.json differ in wpe\.weight"):
        here.on_ranks(here.filled)


class Run:
    def __init__(self, here, mesh, line="", *, fill=True):
        arguments = ["--data", "x", "--batch", "8", "--out", str(here.folder / "run"), *line.split()]
        self.model = here.filled(mesh) if fill else here.cut.model(mesh)
        settings = read_settings(here.plan, arguments)
        self.optimizer = adamw(self.model, here.plan, settings)
        self.checkpoints = Checkpoints(self.model, self.optimizer, here.plan, settings, mesh)

    def step(self, number):
        for name, parameter in self.model.named_parameters():
            parameter.grad = torch.full_like(parameter, 0.1 * number - 0.01 * len(name))
        self.optimizer.step()

    def tensors(self):
        states = [self.optimizer.state[parameter] for parameter in self.model.parameters()]
        every = [*self.model.parameters(), *(state[key] for state in states for key in sorted(state))]
        return [tensor.detach().clone() for tensor in every]


def test_a_resumed_run_continues_bit_for_bit(tmp_path):
    here = Build(tmp_path, tp=2)

    def train(mesh):
        run = Run(here, mesh)
        for number in (1, 2):
            run.step(number)
        run.checkpoints.save(2)
        run.step(3)
        return run.tensors()

    def go_on(mesh):
        run = Run(here, mesh, "--resume", fill=False)
        assert run.checkpoints.resume() == 2
        run.step(3)
        return run.tensors()

    for found, expected in zip(here.on_ranks(go_on) if (done := here.on_ranks(train)) else (), done):
        assert len(found) == len(expected) > 20
        assert all(torch.equal(a, b) for a, b in zip(found, expected))
    manifest = json.loads((tmp_path / "run" / "checkpoints" / "step-00000002" / "manifest.json").read_text())
    assert manifest["moments"].keys() == dict(Source(4).named_parameters()).keys()
    assert {tuple(keys) for keys in manifest["moments"].values()} == {("exp_avg", "exp_avg_sq", "step")}


def test_a_checkpoint_of_other_stages_is_refused(tmp_path):
    one, other = Build(tmp_path / "one"), Build(tmp_path / "other", "zbv", 2, 2)
    one.on_ranks(lambda mesh: Run(one, mesh).checkpoints.save(1))
    (one.folder / "run").rename(other.folder / "run")
    with pytest.raises(UsageError, match="step-00000001 is of other stages; start from its weights with --load"):
        other.on_ranks(lambda mesh: Run(other, mesh, "--resume", fill=False).checkpoints.resume())


def settings_of(plan, line=""):
    return read_settings(plan, ["--data", "x.txt", *line.split()])


def test_microbatches_are_those_of_the_pipeline(tmp_path):
    plan = Build(tmp_path, dp=2).plan
    assert settings_of(plan).accumulate == 4
    assert settings_of(plan).batch == 4 * 2 * 4
    assert settings_of(plan, "--accumulate 4 --batch 16").rows == 4


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--accumulate 2",
            "--accumulate 2 is not the number of microbatches that the pipeline was compiled for; --accumulate 4 would do",
        ),
        ("--batch 12", "--batch 12 does not divide by 2 data ranks x 4 microbatches = 8; 8 or 16 would do"),
        ("--accumulate 0", "--accumulate 0 must be 1 or more"),
    ],
)
def test_what_the_pipeline_cannot_run_is_refused_with_the_right_value(tmp_path, line, message):
    with pytest.raises(UsageError) as caught:
        settings_of(Build(tmp_path, dp=2).plan, line)
    assert message in str(caught.value)


def test_a_loss_that_does_not_add_up_needs_one_microbatch(tmp_path):
    plan = dataclasses.replace(Build(tmp_path).plan, adds_up=False)
    with pytest.raises(UsageError, match=r"pipeline\.microbatches: 4 would change the loss"):
        settings_of(plan)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("64", 64),
        ("batch/2", 6),
        ("batch*seq/4", 30),
        ("2*(seq - 1) + 1", 19),
        ("seq**2", 100),
        ("seq//3", 3),
        ("-3 + seq", 7),
        ("batch/2/3*seq", 20),
        ("2**2*seq - 3*(batch - 2)", 10),
    ],
)
def test_sizes_are_read(expression, value):
    assert size(expression, {"batch": 12, "seq": 10}) == value


@pytest.mark.parametrize(
    "expression", ["batch/5", "print(1)", "rows", "seq.real", "seq**batch", "(seq", "2 seq", "seq/0", ""]
)
def test_what_is_no_size_is_refused(expression):
    with pytest.raises(ValueError, match="no size"):
        size(expression, {"batch": 12, "seq": 10})
