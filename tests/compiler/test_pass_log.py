"""The log of the passes says what was done, and whether anybody asks for it changes nothing."""

import json
from itertools import pairwise

import pytest
import zoo
from builds import SMALL, Small, captured, compiled, source, spec_of

from graphpar.builds.log import changes, log
from graphpar.compiler import AFTER, BEFORE, compile_captured
from graphpar.ir.difference import difference
from graphpar.rewrite.steps import Record, Step

CASES = [(zoo.MODELS["gpt2"], "dp2xtp2+sp"), (zoo.MODELS["llama"], "tp2")]
ENGINE = {"capacity", "bodies", "names", "recompute", "place", "count"}


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0].name}-{case[1]}")
def watched(request):
    model, spec = request.param
    record = Record(captured(model).graph)
    build = compile_captured(captured(model), spec_of(model, spec), source(model), (), record)
    return model, spec, build, record


def test_a_compilation_that_is_watched_gives_the_same_files(watched):
    model, spec, build, _ = watched
    assert build.files == compiled(model, spec).files


def test_every_pass_is_a_step_and_each_goes_on_where_the_last_one_ended(watched):
    model, _, build, record = watched
    names = [step.name for step in record.steps]
    assert set(names) == {*BEFORE, *AFTER} | ENGINE and len(set(names)) == len(names)
    assert record.steps[0].before is captured(model).graph
    assert all(first.after is then.before for first, then in pairwise(record.steps))
    assert record.steps[-1].after is build.program.graph
    assert all(step.purpose.endswith(".") and step.seconds >= 0 for step in record.steps)


def test_the_numbers_of_the_log_are_those_of_the_graphs(watched):
    *_, record = watched
    document = json.loads(log(record.steps))
    for entry, step in zip(document["steps"], record.steps, strict=True):
        assert len(step.before.nodes) - entry["removed"] + entry["added"] == len(step.after.nodes)
        nodes = sum(1 for c in entry["changes"] if c["op"] != "module")
        assert (nodes > 0) == bool(entry["removed"] + entry["added"] + entry["changed"])


def test_placement_adds_every_collective_with_its_reason_and_the_rule_that_asks_for_it(watched):
    *_, record = watched
    step = next(s for s in record.steps if s.name == "place")
    found = difference(step.before, step.after)
    collectives = [n for n in step.after.nodes if "forward" in n.attrs]
    assert collectives and set(collectives) <= set(found.added)
    told = [(c, times) for c, times in changes(found) if " over " in c.op]
    times = {n: len(step.after.members(n.origin.module)) for n in collectives}
    assert sum(n for _, n in told) == sum(times.values())
    assert all(c.why and c.source and (", by `" in c.why or "first_only" in c.op) for c, _ in told)


def test_only_the_seconds_differ_from_one_time_to_the_next(watched):
    *_, record = watched
    slower = [Step(s.name, s.doc, s.seconds + 1, s.before, s.after) for s in record.steps]
    one, two = (json.loads(log(steps)) for steps in (record.steps, slower))
    assert one != two
    for document in (one, two):
        for step in document["steps"]:
            del step["seconds"]
    assert one == two


def test_what_is_marked_to_run_again_and_bodies_of_their_own_are_told():
    model = zoo.MODELS["gpt2"]
    spec = {
        "version": 1,
        "mesh": {"tp": 2},
        "layout": [{"heads": "tp"}],
        "regions": [{"at": "layers.0", "recompute": True}],
    }
    record = Record(captured(model).graph)
    compile_captured(captured(model), spec_of(model, spec), source(model), (), record)
    told = {s.name: difference(s.before, s.after) for s in record.steps}
    assert list(told["recompute"].modules.values()) == ["run again in the backward pass"]
    (path,) = told["bodies"].modules
    assert told["bodies"].modules[path].startswith("2 bodies for its ") and not told["bodies"].removed


def test_a_pass_of_the_user_is_a_step_even_if_it_is_called_like_one_of_ours(tmp_path):
    text = '"""Does nothing.\n\nWhy   to be seen.\n"""\n\n\ndef place(graph):\n    return graph\n'
    (tmp_path / "place.py").write_text(text)
    model = Small(min(p.stem for p in SMALL.glob("*.py") if p.stem != "parts"))
    record = Record(captured(model).graph)
    compile_captured(captured(model), spec_of(model, "tp2"), source(model), (tmp_path,), record)
    names = [s.name for s in record.steps]
    own = record.steps[names.index("place")]
    assert own.purpose == "Does nothing." and own.said("Why") == "to be seen."
    assert names.index("place") < names.index("place-2")
