"""The overview folds layers that are alike, names what a person looks for, and leaves no collective out."""

import json
import re
import shutil
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from deep_zoo import deep

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.explain.sizes import number
from graphpar.language.parse import parse_spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from graphpar.viz.command import View, visualize
from graphpar.viz.heading import heading
from graphpar.viz.outline import lines, outlined
from graphpar.viz.overview import overview
from graphpar.viz.part import part
from graphpar.viz.picture import Compute, Module
from graphpar.viz.walk import draw

MODELS = Path(__file__).parents[1] / "models"
TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
PIPELINE = {"axis": "pp", "schedule": "1f1b", "microbatches": 2}
SPECS = {
    "gpt": ("nanogpt_manual.py:tiny", {"mesh": {"tp": 2}, "layout": TENSOR, "uneven": {"vocab": "pad"}}),
    "llama": ("llama_style.py:tiny", {"mesh": {"pp": 2, "tp": 2}, "layout": TENSOR, "pipeline": PIPELINE}),
    "experts": ("moe_plain.py:tiny", {"mesh": {"ep": 2}, "layout": [{"batch": "ep"}], "moe": {"experts": "ep"}}),
}


@cache
def drawn(name):
    model, document = SPECS[name]
    source = open_model(f"{MODELS / model}")
    captured = Origin(source.construct, source.signature).captured
    spec = parse_spec(yaml.safe_dump({"version": 1, **document}, sort_keys=False), "spec.yaml")
    build = compile_captured(captured, spec, {"model": model, "spec_file": "spec.yaml"})
    return draw(build.files["model.py"], build.plan)


def modules(module):
    yield module
    for item in module.items:
        if isinstance(item, Module):
            yield from modules(item)


def computes(module):
    return [item for m in modules(module) for item in m.items if isinstance(item, Compute)]


@pytest.mark.parametrize("name", SPECS)
def test_folding_leaves_out_no_kind_of_collective_and_no_parameter(name):
    whole, folded = drawn(name), outlined(drawn(name))
    kinds = [{(m.cls, e.row.line, e.reason) for m, e in picture.exchanges()} for picture in (whole, folded)]
    assert kinds[0] == kinds[1] and kinds[0]
    shown = {w.axes for row in folded.root.rows() for w in row.weights}
    assert shown == {w.axes for row in whole.root.rows() for w in row.weights}


@pytest.mark.parametrize("name", SPECS)
def test_arrows_go_on_and_lead_to_what_is_drawn(name):
    picture = outlined(drawn(name))
    at = [v.id for v in picture.inputs]
    at += [item.id for m in modules(picture.root) for item in m.items if not isinstance(item, Module)]
    assert {e.tail for e in picture.edges} | {e.head for e in picture.edges} == {*at, picture.result.id}
    assert all(e.tail != e.head for e in picture.edges)


def test_arrows_have_the_axes_of_their_value():
    text = overview(drawn("gpt"), heading(drawn("gpt").plan, {}))
    into = [re.sub("<.*?>", "", line) for line in text.splitlines() if " -> " in line]
    assert any("batch&#160;seq&#160;d_model" in line and "partial(tp)" in line for line in into)


def test_layers_that_take_turns_are_drawn_once_each():
    root = drawn("experts").root
    dense, experts = (next(m for m in modules(root) if m.path == f"blocks.{i}") for i in (0, 1))
    added = next(item for item in root.items if isinstance(item, Compute) and "extra" in item.rows[0].code)
    items = [replace(m, path=f"blocks.{2 * i + k}") for i in range(6) for k, m in enumerate((dense, experts))]
    with_sums = [entry for i in range(0, 12, 2) for entry in (*items[i : i + 2], added)]
    for several in (items, with_sums):
        folded = outlined(replace(drawn("experts"), root=replace(root, items=tuple(several)))).root.items
        found = [(m.path, m.members) for m in folded if isinstance(m, Module)]
        assert found == [("blocks[0:11:2]", "× 6"), ("blocks[1:12:2]", "× 6")]


def test_a_box_names_modules_parameters_and_what_a_person_looks_for():
    named = [line for compute in computes(drawn("gpt").root) for line in lines(compute)]
    assert {"query", "proj", "ln_1", "softmax", "mlp[1]", "tok_emb"} <= {line.text for line in named}
    assert {"NewGELU"} <= {line.what for line in named}
    read = {line.text: line.weight for line in named if line.weight}
    assert (read["query"].axes, read["query"].here) == ("(heads@tp d_head) d_model", (16, 32))


def test_experts_are_told_on_their_cluster():
    text = overview(drawn("experts"), heading(drawn("experts").plan, {}))
    assert "8 experts, 4 on each rank of ep" in text
    assert "how many rows go where" in text and "each row back to its token" in text


def test_bytes_of_a_pipeline_are_those_of_a_microbatch():
    whole = drawn("llama")
    facts = heading(whole.plan, {"batch": 8, "seq": 16})
    sums = [e for _, e in whole.exchanges() if e.forward == "all_reduce"]
    assert {number(e.forward_elements, 8 // PIPELINE["microbatches"], 16) * 4 for e in sums} == {16 << 10}
    text = overview(whole, facts)
    assert "16&#160;KiB" in text or "16 KiB" in text
    assert "32 KiB" not in text and any("in 2 microbatches" in fact for fact in facts.facts)


def test_one_module_is_drawn_with_what_flows_through_it():
    whole = drawn("llama")
    module = next(m for m in modules(whole.root) if m.path.endswith("attention"))
    alone = part(whole, module.path)
    assert [m.path for m in modules(alone.root)][1] == module.path
    assert alone.inputs and all(v.axes for v in alone.inputs)
    assert alone.result.axes == "batch seq d_model"
    ids = {v.id for v in alone.inputs} | {i.id for m in modules(alone.root) for i in m.items} | {alone.result.id}
    assert {x for e in alone.edges for x in (e.tail, e.head)} <= ids
    text = View("op", module.path).text(whole, heading(whole.plan, {}))
    assert "gradients, after backward" not in text


def test_any_layer_stands_for_those_that_are_drawn_as_one():
    whole = drawn("gpt")
    path = next(m.path for m in modules(whole.root) if ".*" in m.path)
    assert part(whole, path.replace("*", "1")).root.path == path


def test_a_module_that_is_not_drawn_is_told_with_those_that_are():
    with pytest.raises(GraphparError, match="no-such-module") as told:
        part(drawn("gpt"), "transformer.attention")
    assert "blocks.*" in told.value.diagnostics[0].fix


DEEP = {
    "mesh": {"pp": 16, "tp": 2},
    "layout": [*TENSOR, {"seq": "tp"}],
    "pipeline": {"axis": "pp", "schedule": "1f1b", "microbatches": 16},
}


@pytest.fixture(scope="module")
def deep_build(tmp_path_factory):
    """A model of 126 layers in 16 stages."""
    folder = tmp_path_factory.mktemp("deep")
    spec = parse_spec(yaml.safe_dump({"version": 1, **DEEP}, sort_keys=False), "spec.yaml")
    described = {"model": "llama", "spec_file": "spec.yaml"}
    compile_captured(deep("llama_style", 126).captured, spec, described).write(folder)
    return folder


def test_stages_that_are_alike_are_one(deep_build):
    plan = json.loads((deep_build / "plan.json").read_text())
    folded = outlined(draw((deep_build / "model.py").read_text(), plan))
    stages = [(m.path, m.members) for m in folded.root.items if isinstance(m, Module)]
    held = sum(int(members.removeprefix("× ") or 1) for _, members in stages)
    assert held == 16 and len(stages) <= 4
    assert stages[0][0] == "stage 0, pp 0" and any(path.startswith("stages 1 to ") for path, _ in stages)


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz's dot is not installed")
def test_126_layers_are_drawn_within_10_seconds(deep_build, tmp_path):
    start = time.monotonic()
    written = visualize(deep_build, [tmp_path / "a.svg", tmp_path / "a.png"])
    assert time.monotonic() - start < 10
    assert [file.stat().st_size > 0 for file in written.files] == [True, True]
