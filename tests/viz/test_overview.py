"""The overview folds layers that are alike, names what a person looks for, and leaves no collective out."""

import re
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.language.parse import parse_spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from graphpar.viz.command import View
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


def test_a_deep_pipeline_is_outlined_in_no_time():
    whole = drawn("llama")
    many = replace(whole.root, items=tuple(_stage(whole.root.items[0], s) for s in range(200)))
    start = time.monotonic()
    folded = outlined(replace(whole, root=many))
    assert time.monotonic() - start < 5
    assert [m.path for m in folded.root.items] == ["stages 0 to 199"]


def _stage(module, number):
    return replace(module, path=f"stage {number}, pp {number}")
