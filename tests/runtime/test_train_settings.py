"""The command line: one message with the arithmetic for what cannot run."""

import dataclasses
import math

import pytest
from small_build import plan as small_plan

from graphpar.runtime.optimizer import DecayGroups
from graphpar.runtime.plan import Plan, PlanError, read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.schedule import learning_rate
from graphpar.runtime.settings import Settings, read_settings

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def plan(tmp_path) -> Plan:
    import json

    (tmp_path / "plan.json").write_text(json.dumps(small_plan(dp=2, tp=2)))
    return dataclasses.replace(read_plan(tmp_path / "plan.json"), seq_multiple=2)


def settings_of(plan: Plan, line: str = "") -> Settings:
    return read_settings(plan, ["--data", "x.txt", *line.split()])


def test_defaults_fit_the_mesh(plan: Plan) -> None:
    settings = settings_of(plan, "--accumulate 3")
    assert settings.batch == 4 * 2 * 3
    assert settings.rows == 8
    assert settings.seq == 16
    assert settings.min_lr == pytest.approx(settings.lr / 10)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--batch 6 --accumulate 2", "--batch 6 does not divide by 2 data ranks x 2 microbatches = 4; 4 or 8 would do"),
        ("--batch 1", "--batch 1 does not divide by 2 data ranks x 1 microbatches = 2; 2 would do"),
        ("--seq 15", "--seq 15 does not divide by 2, as cutting seq over the mesh (dp 2 x tp 2) needs; 14 or 16"),
        ("--seq 18", "--seq 18 is more than the 16 positions that the model has"),
        ("--lr 0", "--lr 0.0 must be more than 0"),
        ("--min-lr 1", "--min-lr 1.0 is more than --lr 0.0003"),
        ("--steps 0", "--steps 0 must be 1 or more"),
        ("--accumulate 0", "--accumulate 0 must be 1 or more"),
        ("--betas 0.9 1", "--betas 0.9 1.0 must be in [0, 1)"),
        ("--precision fp8", "invalid choice: 'fp8'"),
        ("--stpes 3", "unrecognized arguments: --stpes 3"),
        ("--resume --load x", "--resume and --load both say where to start"),
    ],
)
def test_what_cannot_run_is_refused_with_the_arithmetic(plan: Plan, line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(plan, line)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_problem_is_named_at_once(plan: Plan) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(plan, "--batch 3 --seq 7 --clip -1")
    assert all(flag in str(caught.value) for flag in ("--batch 3", "--seq 7", "--clip -1"))


def test_the_rate_warms_up_and_ends_at_its_least(plan: Plan) -> None:
    settings = settings_of(plan, "--steps 11 --warmup 4 --lr 1 --min-lr 0.1")
    rates = [learning_rate(step, settings) for step in range(11)]
    assert rates[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert rates[7] == pytest.approx(0.55)  # half way down the cosine
    assert rates[-1] == pytest.approx(0.1)


def test_steps_that_evaluate_and_save(plan: Plan) -> None:
    settings = settings_of(plan, "--steps 5 --eval-every 2 --no-save")
    assert [step for step in range(5) if settings.evaluates(step)] == [1, 3, 4]
    assert not any(settings.saves(step) for step in range(5))
    assert settings_of(plan, "--clip 0").max_norm == math.inf


def test_decay_follows_the_source_shapes(plan: Plan) -> None:
    groups = DecayGroups.of(plan)
    assert "wte.weight" in groups.decayed
    assert {"ln_f.weight", "blocks.0.up.bias"} <= set(groups.kept)
    assert str(groups) == "10 parameters with weight decay, 18 without"


def test_a_missing_or_broken_plan_is_named(tmp_path) -> None:
    with pytest.raises(PlanError, match=r"plan\.json is missing"):
        read_plan(tmp_path / "plan.json")
    (tmp_path / "plan.json").write_text("{}")
    with pytest.raises(PlanError, match="entry 'inputs' is missing"):
        read_plan(tmp_path / "plan.json")
