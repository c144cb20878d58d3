"""What the page shows is what the plan says: its document, without a browser."""

import json
import re
from collections import Counter
from dataclasses import replace
from math import prod

import pytest
import torch
from compiled_zoo import parsed
from deep_zoo import deep

from graphpar.compiler import compile_captured
from graphpar.explain.memory import by_place, memory
from graphpar.explain.traffic import traffic
from graphpar.runtime.shards import Place, cut, read_dims
from graphpar.viz.heading import heading
from graphpar.viz.page import page
from graphpar.viz.page.document import document
from graphpar.viz.page.members import stands_for
from graphpar.viz.page.shares import shares
from graphpar.viz.page.states import dimensions, states
from graphpar.viz.page.write import as_script
from graphpar.viz.part import modules
from graphpar.viz.walk import draw

TENSOR = [{"batch": "dp"}, {"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}, {"seq": "tp"}]
SPECS = {
    "tensor": ("llama_style", 3, {"mesh": {"dp": 2, "tp": 2}, "layout": TENSOR}),
    "stages": (
        "nanogpt_without_bias",
        4,
        {
            "mesh": {"pp": 2, "tp": 2},
            "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}],
            "uneven": {"vocab": "pad"},
            "pipeline": {"axis": "pp", "schedule": "interleaved", "virtual": 2, "microbatches": 4},
        },
    ),
}


@pytest.fixture(scope="module", params=SPECS)
def made(request):
    name, layers, spec = SPECS[request.param]
    source = {"model": name, "spec_file": "spec.yaml"}
    return compile_captured(deep(name, layers).captured, parsed({"version": 1, **spec}), source)


@pytest.fixture(scope="module")
def plan(made):
    return json.loads(made.files["plan.json"])


@pytest.fixture(scope="module")
def told(made, plan):
    text = made.files["model.py"]
    return document(draw(text, plan), heading(plan, {}), text)


def test_bytes_are_those_of_the_traffic(told, plan):
    found = traffic(plan, heading(plan, {}).size)
    sums = {}
    for row in told["collectives"]:
        count, total = sums.setdefault(row["place"], {}).get((row["phase"], row["kind"], row["axis"]), (0, 0))
        assert row["total"] == pytest.approx(row["each"] * row["count"])
        sums[row["place"]][row["phase"], row["kind"], row["axis"]] = (count + row["count"], total + row["total"])
    assert {(t.phase, t.kind, t.axis): (t.count, t.bytes) for t in found} in sums.values()
    assert len(sums) == len(by_place(plan))


def test_a_collective_leads_to_the_line_that_does_it(told, plan, made):
    text = made.files["model.py"].splitlines()
    for row in told["collectives"]:
        if row["phase"] == "gradients" or row["kind"] == "send":
            assert row["node"] is None
        else:
            (line,) = told["nodes"][row["node"]]["lines"]
            place = plan["lines"][str(line)]
            assert (place["where"], place["module"]) == (row["where"], row["module"])
            assert "self." in text[line - 1]


def test_memory_is_that_of_the_plan(told, plan):
    stored = told["memory"]
    assert max(place["total"] for place in stored["places"]) == memory(plan).total
    for place, held in zip(stored["places"], by_place(plan), strict=True):
        assert dict(zip(stored["kinds"], place["stored"], strict=True)) == {
            "parameters": held.parameters, "gradients": held.gradients, "moments": held.moments, "buffers": held.buffers,
        }  # fmt: skip
        assert sum(place["stored"]) == place["total"]


def test_every_rank_has_the_part_that_is_cut_for_it(told, plan):
    """Indices along each dimension, read from the texts, pick what the runtime cuts from the whole."""
    checked = 0
    for tensor in told["tensors"]["list"]:
        entry = {**plan["parameters"], **plan["buffers"]}[tensor["name"]]
        layout = told["tensors"]["layouts"][tensor["layout"]]
        assert (layout["axes"], layout["shape"], layout["local"]) == (
            entry["axes"],
            entry["shape"],
            entry["local_shape"],
        )
        whole = torch.arange(prod(entry["shape"])).reshape(entry["shape"])
        assert len(layout["of"]) == prod(plan["mesh"].values())
        for rank, part in enumerate(layout["of"]):
            at = Place.of(plan["mesh"], rank)
            if part is None:
                stages = plan["pipeline"]["stages"]
                assert at.at["pp"] not in {stages[s]["rank"] for s in entry["stages"]}
                continue
            words = layout["parts"][part]
            if any("…" in word or "padding" in word for word in words):
                continue
            picked = whole
            for dim, word in enumerate(words):
                picked = picked.index_select(dim, torch.tensor(indices(word), dtype=torch.int64))
            assert torch.equal(picked, cut(whole, read_dims(entry["dims"]), at)), (tensor["name"], rank, words)
            checked += 1
    assert checked > len(told["tensors"]["list"])


def indices(word):
    if word.startswith("all "):
        return list(range(int(word.removeprefix("all "))))
    return [i for part in word.split(", ") for i in range(*map(int, part.split(":")))]


def test_what_is_cut_in_many_ranges_and_padded_says_so():
    plan = {"mesh": {"tp": 2}, "pipeline": None}
    heads = {"shape": [40], "dims": [[[[5, []], [4, ["tp"]], [2, []]]]]}
    assert shares(heads, plan)["parts"] == [["0:4, 8:12, … 32:36 (5 ranges)"], ["4:8, 12:16, … 36:40 (5 ranges)"]]
    padded = {"shape": [7], "dims": [[[[8, ["tp"]]]]]}
    assert shares(padded, plan) == {"parts": [["0:4"], ["4:7 and 1 of padding"]], "of": [0, 1]}


def test_states_say_cut_partial_and_replicated():
    plan = {"mesh": {"dp": 2, "tp": 2, "ep": 2, "one": 1}, "pipeline": None}
    found = states("(batch@dp+ep seq) 2", "partial(tp)", plan, "")
    assert [s["state"] for s in found] == [
        "cut: batch",
        "partial: a sum is still to be taken",
        "cut: batch",
        "one rank",
    ]
    assert [s["state"] for s in states("scalar", "", plan, "")][:3] == ["replicated"] * 3


def test_along_a_pipeline_a_tensor_is_on_the_ranks_of_its_stages(told, plan):
    if not plan["pipeline"]:
        pytest.skip("no pipeline")
    for tensor in told["tensors"]["list"]:
        layout = told["tensors"]["layouts"][tensor["layout"]]
        along = next(s["state"] for s in layout["states"] if s["axis"] == "pp")
        has = {rank // 2 for rank, part in enumerate(layout["of"]) if part is not None}  # pp is the outer axis
        assert along == "on " + " and ".join(f"pp {rank}" for rank in sorted(has))


def test_dimensions_are_named_where_the_names_fit():
    assert list(dimensions("(heads@tp d_head) d_model", 2)) == ["(heads@tp d_head)", "d_model"]
    assert list(dimensions("scalar", 0)) == []


@pytest.mark.parametrize(
    ("path", "name", "whether"),
    [
        ("layers.*.mlp.weight", "layers.17.mlp.weight", True),
        ("layers.*.mlp.weight", "layers.x.mlp.weight", False),
        ("layers[1::2].weight", "layers.3.weight", True),
        ("layers[1::2].weight", "layers.4.weight", False),
        ("layers[0:2].weight", "layers.2.weight", False),
        ("layers[3].h.*.weight", "layers.3.h.0.weight", True),
        ("layers[0, 3].weight", "layers.3.weight", True),
        ("layersx.weight", "layers.weight", False),
    ],
)
def test_a_drawn_module_stands_for_its_members(path, name, whether):
    assert stands_for(path, name) is whether


def test_every_tensor_is_drawn_somewhere(told, made):
    text = made.files["model.py"].splitlines()
    for tensor in told["tensors"]["list"]:
        assert tensor["module"] is not None, tensor["name"]
        assert tensor["name"].split(".")[-1] in text[tensor["line"] - 1]


def test_each_module_has_a_picture_whose_edges_end_in_it(told, made, plan):
    picture = draw(made.files["model.py"], plan)
    ids = [module.id for module in modules(picture.root)]
    assert set(told["pictures"]) == {told["overview"], *ids[1:]}
    for name in ids[1:]:
        text = told["pictures"][name]
        nodes = set(re.findall(r"^ *(\w+) \[", text, re.MULTILINE)) - {"graph", "node", "edge"}
        edges = re.findall(r"^ *(\w+) -> (\w+)", text, re.MULTILINE)
        assert edges and {end for edge in edges for end in edge} == nodes
        assert nodes <= set(told["nodes"]) | set(told["ends"])


def test_a_line_knows_its_states_and_both_places(told, made, plan):
    text = made.files["model.py"].splitlines()
    number, line = next((n, x) for n, x in told["lines"].items() if "F.scaled_dot_product_attention" in x["code"])
    assert line["where"] == plan["lines"][number]["where"]
    assert text[int(number) - 1].split("(")[0].strip() == line["code"].split("(")[0]
    (value,) = line["values"]
    assert {s["axis"]: s["state"] for s in value["states"]}["tp"] in ("cut: heads", "cut: kv_heads")


def test_the_source_is_quoted_as_it_is(told, plan):
    wheres = Counter(line["where"] for line in plan["lines"].values())
    quoted = {
        f"{file}:{function['first'] + i}": line
        for file, functions in told["quoted"].items()
        for function in functions
        for i, line in enumerate(function["text"].split("\n"))
    }
    assert set(wheres) <= set(quoted)
    assert all(quoted[where].strip() for where in wheres)


def test_names_cannot_leave_the_script(told, made, plan):
    name = '</script><!--<script>"'
    assert not re.search("</|<!--", as_script({name: name})) and json.loads(as_script([name])) == [name]
    picture = draw(made.files["model.py"], plan)
    text = page(picture, replace(heading(plan, {}), model="</title><b>"), made.files["model.py"])
    assert "<title>&lt;/title&gt;&lt;b&gt;</title>" in text


def test_the_page_is_whole(made, plan):
    picture = draw(made.files["model.py"], plan)
    text = page(picture, heading(plan, {}), made.files["model.py"])
    assert text == page(picture, heading(plan, {}), made.files["model.py"])
    assert text.count("</script>") == text.count("<script") and text.count("</style>") == text.count("<style")
    assert not re.search(r"<link rel=.stylesheet|<script[^>]* src=|<img|@import|sourceMappingURL", text)
