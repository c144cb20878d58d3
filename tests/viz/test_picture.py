"""The picture shows what the plan says, each collective once, and is the same each time."""

import json
import re
import shutil
from pathlib import Path

import pytest
import zoo
from compiled_zoo import compiled, parsed

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from graphpar.viz import render
from graphpar.viz.colours import KINDS
from graphpar.viz.command import visualize
from graphpar.viz.dot import dot
from graphpar.viz.heading import heading
from graphpar.viz.picture import Module
from graphpar.viz.walk import draw

MODELS = Path(__file__).parents[1] / "models"
TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}, {"seq": "tp"}]
BUILDS = ("gpt2:dp2xtp2+sp", "gpt2:tp2xd2", "gemma2:dp2xtp2+sp")


@pytest.fixture(scope="module", params=BUILDS)
def build(request, tmp_path_factory) -> Path:
    model, spec = request.param.split(":")
    folder = tmp_path_factory.mktemp("builds") / model
    compiled(model, zoo.spec(spec, zoo.MODELS[model]), folder)
    return folder


@pytest.fixture(scope="module")
def plan(build):
    return json.loads((build / "plan.json").read_text())


@pytest.fixture(scope="module")
def picture(build, plan):
    return draw((build / "model.py").read_text(), plan)


def of_file(model, document):
    """The picture of a file among the models, and its plan."""
    source = open_model(f"{MODELS / model}")
    captured = Origin(source.construct, source.signature).captured
    spec = parsed({"version": 1, **document})
    build = compile_captured(captured, spec, {"model": model, "spec_file": "spec.yaml"})
    return draw(build.files["model.py"], build.plan), build.plan


def folded(entries):
    """The collectives of a plan with each kind of a loop's members once."""
    for entry in entries:
        if "loop" in entry:
            for kind in dict.fromkeys(entry["kinds"]):
                yield from folded(entry["bodies"][kind])
        elif "again" in entry:
            yield from folded(entry["again"])
        else:
            yield entry


def modules(module: Module):
    yield module
    for item in module.items:
        if isinstance(item, Module):
            yield from modules(item)


def nodes(module: Module):
    for item in module.items:
        if isinstance(item, Module):
            yield from nodes(item)
        else:
            yield item


def test_every_collective_of_the_plan_is_drawn_once_and_in_order(picture, plan):
    drawn = [(e.forward, e.backward, e.axis, e.reason) for _, e in picture.exchanges()]
    assert drawn == [(e["forward"], e["backward"], e["axis"], e["reason"]) for e in folded(plan["collectives"])]
    assert drawn


@pytest.mark.parametrize(
    ("layout", "dispatch", "function"),
    [
        ([{"batch": "ep"}], "alltoall", "to_experts"),
        ([{"batch": "ep"}], "allgather", "all_gather"),
        ([], "alltoall", "all_reduce(out"),  # each rank has all tokens
    ],
)
def test_rows_that_change_hands_are_drawn(layout, dispatch, function):
    spec = {"mesh": {"ep": 2}, "layout": layout, "moe": {"experts": "ep", "dispatch": dispatch}}
    drawn, plan = of_file("moe_plain.py:tiny", spec)
    assert [e.reason for _, e in drawn.exchanges()] == [e["reason"] for e in folded(plan["collectives"])]
    assert any(function in e.row.code for _, e in drawn.exchanges())
    assert not any("row" in row.axes for row in drawn.root.rows())


def test_what_runs_again_says_so():
    spec = {"mesh": {"tp": 2}, "layout": TENSOR, "regions": [{"at": "layers.*", "recompute": True}]}
    drawn, plan = of_file("llama_style.py:tiny", spec)
    twice = {e.row.line for _, e in drawn.exchanges() if e.twice}
    once = {e.row.line for _, e in drawn.exchanges() if not e.twice}
    assert twice and once
    text = dot(drawn, heading(plan, {}))
    assert text.count("and again in the backward pass") == len(twice)


def test_a_plan_that_is_not_that_of_the_text_is_refused(build, plan):
    more = {**plan, "collectives": [*plan["collectives"], plan["collectives"][-1]]}
    with pytest.raises(GraphparError, match="no line in"):
        draw((build / "model.py").read_text(), more)


def test_every_parameter_stands_where_it_is_read_with_its_axes(picture, plan):
    rows = [*picture.root.rows(), *(exchange.row for _, exchange in picture.exchanges())]
    shown = {w.full_name: w for row in rows for w in row.weights}
    first = {re.sub(r"\.\d+\.", ".*.", n): n for n in reversed(plan["parameters"])}
    assert {re.sub(r"\.\d+\.", ".*.", n) for n in shown} >= set(first)
    for name, weight in shown.items():
        entry = {**plan["parameters"], **plan["buffers"]}[name]
        assert (weight.axes, list(weight.here)) == (entry["axes"], entry["local_shape"])


def test_a_folded_layer_is_drawn_once_and_says_how_often_it_runs(build, picture):
    repeated = [(m.path, m.members) for m in modules(picture.root) if m.members]
    expected = {  # by model
        "gpt2": [("transformer.h.*", "× 4")],
        "gemma2": [("model.layers[0::2]", "× 2"), ("model.layers[1::2]", "× 2")],
    }
    assert repeated == expected[build.name]


def test_values_flow_forward_only_and_every_node_is_reached(picture):
    order = [v.id for v in picture.inputs] + [n.id for n in nodes(picture.root)] + [picture.result.id]
    at = {name: i for i, name in enumerate(order)}
    assert all(at[e.tail] < at[e.head] for e in picture.edges)
    reached = {e.head for e in picture.edges}
    assert {n.id for n in nodes(picture.root)} - reached == set()
    assert {n.id for n in nodes(picture.root)} - {e.tail for e in picture.edges} == set()


def test_no_statement_of_a_forward_method_is_lost(build, picture):
    text = (build / "model.py").read_text().partition("    def count(")[0].splitlines()
    shown = {row.line for row in picture.root.rows()} | {e.row.line for _, e in picture.exchanges()}
    for number, line in enumerate(text, start=1):
        if re.search(r"= (F|torch)\.|= \w+ [+*@] |= (dropout|attention)\(", line):
            assert number in shown, line


def test_the_same_build_gives_the_same_bytes(build, plan, picture):
    again = draw((build / "model.py").read_text(), json.loads((build / "plan.json").read_text()))
    assert dot(picture, heading(plan, {})) == dot(again, heading(plan, {}))


def test_a_collective_has_the_colour_of_its_kind(picture, plan):
    text = dot(picture, heading(plan, {}))
    for _, exchange in picture.exchanges():
        line = next(line for line in text.splitlines() if line.strip().startswith(f"{exchange.id} ["))
        assert f'color="{KINDS[exchange.forward or exchange.backward]}"' in line
        assert exchange.reason in line


def test_bytes_are_those_of_the_sizes_asked_for(build, plan, picture):
    entry = next(e for e in folded(plan["collectives"]) if e["forward"])
    exchange = next(e for _, e in picture.exchanges() if e.forward)
    text = dot(picture, heading(plan, {"batch": 6, "seq": 10}))
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{exchange.id} ["))
    elements = eval(entry["forward_elements"], {"batch": 6, "seq": 10})  # an expression of two names
    assert f"× 4 B = {4 * elements / 1024:.3g} KiB from each rank" in line


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz's dot is not installed")
def test_dot_draws_it(build, tmp_path):
    written = visualize(build, [tmp_path / "a.svg", tmp_path / "a.png"])
    assert [p.name for p in written.files] == ["a.svg", "a.png"] and not written.without_dot
    assert "all_gather" in (tmp_path / "a.svg").read_text()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_dot_there_is_text_and_a_page(build, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    written = visualize(build, [tmp_path / "a.svg", tmp_path / "a.png"])
    assert written.without_dot
    assert [p.name for p in written.files] == ["a.dot", "a.html"]
    with pytest.raises(render.NoDotError):
        render.render("digraph build {\n}", tmp_path / "b.svg")


def test_a_suffix_that_means_nothing_is_refused(build, tmp_path):
    with pytest.raises(GraphparError, match=r"unknown-picture"):
        visualize(build, [tmp_path / "a.jpg"])


def test_a_folder_that_is_no_build_is_refused(tmp_path):
    with pytest.raises(GraphparError, match=r"no model\.py and no plan\.json"):
        visualize(tmp_path, [tmp_path / "a.dot"])
