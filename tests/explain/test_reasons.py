"""Every collective of every plan has reasons down to a line of the spec and a line of the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from complete_reasons import assert_complete_reasons
from explained_builds import OTHERS, built, cases, known

from graphpar.explain.explained import Explained
from graphpar.explain.gradients import shared
from graphpar.explain.traffic import traffic

CASES = [pytest.param(*case, id="-".join(case[:2]), marks=pytest.mark.xdist_group(case[0])) for case in cases()]
DONE: dict[tuple[str, str], Path] = {}


@pytest.fixture
def build(model, layout, document, tmp_path_factory) -> Path:
    """The build of a case, made once."""
    if (model, layout) not in DONE:
        DONE[model, layout] = built(model, document, tmp_path_factory.mktemp("builds") / "build")
    return DONE[model, layout]


@pytest.mark.parametrize(("model", "layout", "document"), CASES)
def test_every_collective_has_a_complete_chain_of_reasons(build: Path) -> None:
    assert_complete_reasons(build)


@pytest.mark.parametrize(("model", "layout", "document"), CASES)
def test_what_is_cut_or_summed_of_a_parameter_has_a_rule(build: Path) -> None:
    for one in known(build).parameters:
        assert all(step.rule for step in (*one.cut, *one.summed)), one.name
        assert len(one.cut) >= len(one.sharded), one.name
        assert bool(one.summed) == bool(one.grad_sum), one.name


@pytest.mark.parametrize(("model", "layout", "document"), CASES)
def test_counts_and_bytes_are_those_of_the_step(build: Path) -> None:
    found = known(build)
    pipeline = found.plan["pipeline"]
    ranks = sorted({stage["rank"] for stage in pipeline["stages"]}) if pipeline else [0]
    theirs = {(t.phase, t.kind, t.axis): (t.count, t.bytes) for t in traffic(found.plan, found.size)}
    ours = [_of_rank(found, f"{pipeline['axis']} {rank}" if pipeline else "") for rank in ranks]
    assert max(ours, key=lambda sent: sum(size for _, size in sent.values())) == theirs


def _of_rank(found: Explained, rank: str) -> dict[tuple[str, str, str], tuple[int, int]]:
    """What a rank sends, by phase, kind and axis; the gradient of a value is sent back by the rank that received it."""
    sent: dict[tuple[str, str, str], tuple[int, int]] = {}
    for one in found.collectives:
        for run in one.runs:
            back = one.op == "send" and run.phase == "backward"
            by = f"{one.axis} {one.entry['stages'][3]}" if back else one.place.rpartition(", ")[2]
            if by == rank and one.op != "shared":
                key = ("backward" if run.phase == "again" else run.phase, run.kind, one.axis)
                count, size = sent.get(key, (0, 0))
                sent[key] = (count + run.count, size + run.bytes)
    return sent


def test_a_parameter_of_several_stages_has_a_sum_of_its_own(tmp_path: Path) -> None:
    found = known(built(*OTHERS["tied stages"], tmp_path))
    (one,) = [c for c in found.collectives if c.op == "shared"]
    assert one.axis == "pp" and one.parameters == ("transformer.wte.weight",)
    assert one.bytes == shared(found.plan)[0].bytes > 0


def test_a_rule_of_a_region_says_where_it_holds(tmp_path: Path) -> None:
    found = known(built(*OTHERS["region"], tmp_path))
    regions = {rule.region for c in found.collectives for rule in c.chain.rules}
    assert regions == {"", "layers.*.feed_forward"}


def test_what_is_run_again_is_counted(tmp_path: Path) -> None:
    found = known(built(*OTHERS["run again"], tmp_path))
    runs = {run.phase: run.count for c in found.collectives if c.loops and c.op == "all_reduce" for run in c.runs}
    assert runs == {"forward": 2, "again": 2}
