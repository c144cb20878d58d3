"""What a spec says once it is read, and that writing it gives it back."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from graphpar.errors import GraphparError
from graphpar.language import LayoutRule, Spec, dump_spec, load_spec, parse_spec
from graphpar.language.schedules import SCHEDULES
from graphpar.language.schema import MeshAxis, Moe, Numerics, axes_by_name
from graphpar.notation import format_tensor

SHIPPED = sorted((Path(__file__).parents[2] / "specs").glob("*.yaml"))
LARGEST = """\
version: 1
model:
  object: GPT
  args: {n_layer: 4, eps: 1e-5, scale: .5, bias: false, name: "no", shape: [2, 3], nothing: null}
  inputs:
    idx: int64[batch=8, seq=1024]
    step: int64[]
  loss: loss
mesh: {dp: rest, cp: 2, tp: 4, pp: 2, aliases: {ep: dp, all: [cp, tp], stages: pp}}
dims: {d_ff: 3072, d_model: {size: 768, is: (heads d_head), multiple_of: 64}}
names:
  c_proj.weight: d_model (heads d_head)
  /transformer.h.*.qkv.weight: (heads d_head + kv_heads d_head) d_model
layout:
  - batch: dp
  - heads: tp
  - seq': none
  - seq: cp
  - seq: tp
  - d_ff.0: all
regions:
  - at: layers[0:4].mlp, op:sdpa@layers[-1], line:model.py:57
    layout: [d_ff: none]
    why: small
  - at: lm_head
    only: true
uneven: {vocab: pad, d_ff: error}
strict: false
numerics: {grad_reduce_dtype: float32, rng: exact, deterministic: true}
ops: {"mylib::rope": "b h s d, s d -> b h s d ; whole d"}
outputs: {logits: sharded}
pipeline:
  axis: stages
  layers: /transformer.h
  schedule: interleaved
  microbatches: 8
  stages: ["wte, layers[0]", "layers[1:3]", "layers[3:6]", "layers[-2:], ln_f"]
  tied: same_stage
moe: {experts: ep, dispatch: allgather, tokens: capacity, capacity_factor: 1.25, group: batch}
expect:
  collectives:
    forward all_reduce tp: {count: 4, bytes: 1.5 MiB}
    gradients all_reduce dp tp: 3
  memory: 80 GiB
  lines: 400
"""


def minimal(layout: str, mesh: str = "{dp: 2, tp: 2}") -> str:
    return f"version: 1\nmesh: {mesh}\nlayout:\n{layout}"


def codes(text: str) -> list[str]:
    with pytest.raises(GraphparError) as caught:
        parse_spec(text)
    return [diagnostic.code for diagnostic in caught.value.diagnostics]


def test_every_part_of_a_spec_is_read():
    spec = parse_spec(LARGEST)
    assert [(axis.name, axis.size) for axis in spec.mesh.axes] == [("dp", "rest"), ("cp", 2), ("tp", 4), ("pp", 2)]
    assert spec.mesh.aliases == {"ep": ("dp",), "all": ("cp", "tp"), "stages": ("pp",)}
    assert spec.layout[0] == LayoutRule("batch", ("dp",))
    assert spec.layout[2] == LayoutRule("seq'", ())
    assert spec.layout[5].axes == ("cp", "tp") and spec.layout[5].written == ("all",)
    assert spec.model is not None
    assert spec.model.args == {
        "n_layer": 4,
        "eps": 1e-5,
        "scale": 0.5,
        "bias": False,
        "name": "no",
        "shape": [2, 3],
        "nothing": None,
    }
    assert [(entry.name, entry.dtype, entry.axes) for entry in spec.model.inputs] == [
        ("idx", "int64", (("batch", 8), ("seq", 1024))),
        ("step", "int64", ()),
    ]
    assert (spec.dims["d_model"].size, spec.dims["d_model"].multiple_of) == (768, 64)
    assert format_tensor(spec.names[1].axes) == "(heads d_head + kv_heads d_head) d_model"
    assert [selector.kind for selector in spec.regions[0].at] == ["module", "op", "line"]
    assert spec.regions[1].only and not spec.regions[1].layout
    assert (spec.uneven.of("vocab"), spec.uneven.of("d_ff"), spec.uneven.of("seq")) == ("pad", "error", "error")
    assert not spec.strict
    assert spec.numerics == Numerics("float32", "exact", deterministic=True)
    assert spec.ops["mylib::rope"].rule.endswith("whole d")
    assert spec.outputs == {"logits": "sharded"}
    assert spec.data_axes == ("dp",)
    pipeline = spec.pipeline
    assert pipeline is not None and pipeline.stages is not None
    assert (pipeline.axis, pipeline.layers.text, pipeline.schedule) == ("pp", "/transformer.h", "interleaved")
    assert (pipeline.virtual, pipeline.microbatches, pipeline.tied) == (2, 8, "same_stage")
    assert [[s.text for s in stage] for stage in pipeline.stages][3] == ["layers[-2:]", "ln_f"]
    moe = spec.moe
    assert moe is not None and (moe.experts, moe.written, moe.dispatch) == ("dp", "ep", "allgather")
    assert (moe.tokens, moe.capacity_factor, moe.group) == ("capacity", 1.25, "batch")
    assert (pipeline.spans["schedule"].line, pipeline.spans["schedule"].column) == (35, 13)


def test_a_rule_knows_where_it_stands():
    rule = parse_spec(minimal("  - heads: [dp, tp]\n")).layout[0]
    assert (rule.span.line, rule.span.column, rule.span.length) == (4, 5, 5)
    assert (rule.axes_span.line, rule.axes_span.column, rule.axes_span.length) == (4, 12, 8)


def test_rules_for_one_dimension_add_up_until_none():
    spec = parse_spec(minimal("  - seq: dp\n  - heads: tp\n  - seq: tp\n  - d_ff: none\n"))
    assert axes_by_name(spec.layout) == {"seq": ("dp", "tp"), "heads": ("tp",), "d_ff": ()}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_specs_are_read_and_written(path):
    spec = load_spec(path)
    text = dump_spec(spec)
    assert parse_spec(text) == spec
    assert dump_spec(parse_spec(text)) == text


def test_the_largest_spec_is_read_and_written():
    spec = parse_spec(LARGEST)
    assert parse_spec(dump_spec(spec)) == spec


def test_what_is_written_means_the_same_to_any_yaml_reader():
    written = yaml.safe_load(dump_spec(parse_spec(LARGEST)))
    assert written["model"]["args"] == {
        "n_layer": 4,
        "eps": 1e-5,
        "scale": 0.5,
        "bias": False,
        "name": "no",
        "shape": [2, 3],
        "nothing": None,
    }
    assert written["layout"] == [
        *({"batch": "dp"}, {"heads": "tp"}, {"seq'": "none"}, {"seq": "cp"}, {"seq": "tp"}, {"d_ff.0": ["cp", "tp"]}),
    ]


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,4}", fullmatch=True).filter(
    lambda n: n.lower() not in ("yes", "no", "on", "off")
)


@st.composite
def specs(draw: st.DrawFn) -> str:
    axes = draw(st.lists(NAMES.filter(lambda n: n not in ("rest", "none")), min_size=1, max_size=3, unique=True))
    sizes = {axis: draw(st.integers(1, 9)) for axis in axes}
    names = draw(st.lists(NAMES, max_size=4, unique=True))
    rules = [(name, draw(st.lists(st.sampled_from(axes), max_size=2, unique=True))) for name in names]
    lines = [f"  - {name!r}: {[*on] or 'none'}" for name, on in rules]
    return "\n".join(["version: 1", f"mesh: {sizes}", "layout:", *(lines or ["  []"])])


@st.composite
def pipelines(draw: st.DrawFn) -> str:
    ranks = draw(st.integers(1, 4))
    name = draw(st.sampled_from([*SCHEDULES, "schedules/own.csv"]))
    known = SCHEDULES.get(name)
    virtual = draw(st.integers(known.least, min(known.most, 3))) if known else draw(st.integers(1, 2))
    words = {
        "axis": "pp",
        "schedule": name,
        "microbatches": ranks * virtual * draw(st.integers(1, 3)),
        "virtual": virtual,
        "layers": draw(st.sampled_from(["layers", "/transformer.h", "model.layers"])),
        "tied": draw(st.sampled_from(["allreduce", "same_stage"])),
        "of": "batch",
        "stages": draw(st.sampled_from(["balanced", [f"layers[{i}], ln_?" for i in range(ranks * virtual)]])),
    }
    needed = ["axis", "schedule", "microbatches"]
    kept = needed + draw(st.lists(st.sampled_from([k for k in words if k not in needed]), unique=True))
    if "stages" in kept and known and "virtual" not in kept:
        kept += ["virtual"]
    document = {"version": 1, "mesh": {"pp": ranks}, "layout": [], "pipeline": {k: words[k] for k in kept}}
    return yaml.safe_dump(document, sort_keys=False)


@given(pipelines())
@settings(max_examples=60, deadline=None)
def test_any_pipeline_survives_writing_and_reading(text):
    spec = parse_spec(text)
    assert spec.pipeline is not None
    assert parse_spec(dump_spec(spec)) == spec
    assert dump_spec(parse_spec(dump_spec(spec))) == dump_spec(spec)


@st.composite
def mixtures(draw: st.DrawFn) -> str:
    room = {"tokens": "capacity", "capacity_factor": draw(st.floats(1e-8, 1e8))}
    tokens = draw(st.sampled_from([{}, {"tokens": "dropless"}, room, {**room, "group": "batch"}]))
    dispatch = draw(st.sampled_from([{}, {"dispatch": "alltoall"}, {"dispatch": "allgather"}]))
    words = [("experts", draw(st.sampled_from(["dp", "ep", "tp"]))), *tokens.items(), *dispatch.items()]
    lines = [f"  {key}: {_numeral(value)}" for key, value in draw(st.permutations(words))]
    return minimal("  - batch: dp\n", "{dp: 2, tp: 2, aliases: {ep: dp}}") + "\n".join(["moe:", *lines, ""])


def _numeral(value: object) -> object:
    return f"{value:.6e}" if isinstance(value, float) else value


@given(mixtures())
@settings(max_examples=60, deadline=None)
def test_any_experts_survive_writing_and_reading(text):
    spec = parse_spec(text)
    assert spec.moe is not None
    written = dump_spec(spec)
    assert parse_spec(written) == spec
    assert dump_spec(parse_spec(written)) == written
    assert yaml.safe_load(written)["moe"]["experts"] == yaml.safe_load(text)["moe"]["experts"]


def test_experts_are_a_rule_beside_the_lists():
    region = "regions:\n  - at: mlp\n    layout: [d_ff: none]\n"
    spec = parse_spec(minimal("  - batch: dp\n", "{dp: 2, aliases: {ep: dp}}") + region + "moe:\n  experts: ep\n")
    assert [str(rule) for rule in spec.listed] == ["batch: dp", "d_ff: none"]
    assert [str(rule) for rule in spec.rules] == ["batch: dp", "d_ff: none", "experts: ep"]
    rule = spec.rules[-1]
    assert (rule.axes, rule.written) == (("dp",), ("ep",))
    assert (rule.span.line, rule.span.column, rule.axes_span.column) == (9, 3, 12)
    assert spec.data_axes == ("dp",)


def test_experts_need_one_word():
    moe = parse_spec(minimal("  - batch: dp\n") + "moe: {experts: dp}\n").moe
    assert moe == Moe("dp", "alltoall", "dropless", None, None)
    assert moe.span_of("tokens") == moe.span


@pytest.mark.parametrize("axis", ["dp", "tp", "ep"])
def test_experts_may_lie_where_tokens_are_cut_and_where_they_are_whole(axis):
    layout = "  - batch: dp\n  - seq: [tp]\n"
    spec = parse_spec(minimal(layout, "{dp: 2, tp: 2, ep: 2}") + f"moe: {{experts: {axis}}}\n")
    assert spec.moe is not None and spec.moe.experts == axis


def test_a_schedule_of_a_file_says_its_stages_unless_the_spec_does():
    words = "axis: pp, schedule: own.csv, microbatches: 4"
    silent, said = (
        parse_spec(minimal("  []\n", "{pp: 2}") + f"pipeline: {{{words}{more}}}\n") for more in ("", ", virtual: 2")
    )
    assert "virtual" not in dump_spec(silent) and "  virtual: 2\n" in dump_spec(said)
    assert parse_spec(dump_spec(said)) == said


@given(specs())
@settings(max_examples=60, deadline=None)
def test_any_layout_survives_writing_and_reading(text):
    try:
        spec = parse_spec(text)
    except GraphparError as error:  # a word such as null or true, or an axis called like one
        assert {d.code for d in error.diagnostics} <= {"wrong-type", "bad-name", "ambiguous-scalar"}
        return
    assert parse_spec(dump_spec(spec)) == spec


def test_all_mistakes_are_reported_in_the_order_of_the_file():
    with pytest.raises(GraphparError) as caught:
        parse_spec("version: 3\nmesh: {tp: 0}\nlayout:\n  - heads: mp\nfoo: 1\nstore: []\n")
    lines = [d.span.line for d in caught.value.diagnostics if d.span]
    assert lines == [1, 2, 4, 5, 6]


@pytest.mark.parametrize("version", ["'1'", "1.0", "01", "one", "[1]"])
def test_only_version_one_is_read(version):
    assert codes(f"version: {version}\nmesh: {{tp: 2}}\nlayout: []\n") == ["bad-version"]


@pytest.mark.parametrize("key", ["store", "context"])
def test_words_without_a_meaning_yet_are_refused(key):
    assert codes(minimal("  - batch: dp\n") + f"{key}: {{}}\n") == ["not-available"]


def test_the_same_ranks_under_two_names_are_one_axis():
    assert codes(minimal("  - batch: [dp, ep]\n", "{dp: 2, aliases: {ep: dp}}")) == ["axis-twice"]
    assert codes(minimal("  - seq: all\n  - seq: tp\n", "{dp: 2, tp: 2, aliases: {all: [dp, tp]}}")) == ["axis-twice"]


def test_a_region_may_repeat_an_axis_of_the_global_list():
    region = "regions:\n  - at: mlp\n    layout: [seq: tp]\n"
    assert parse_spec(minimal("  - seq: tp\n") + region).regions[0].layout[0].axes == ("tp",)


def test_equality_is_about_meaning():
    assert parse_spec(minimal("  - heads: tp\n")) == parse_spec(minimal("  # why\n  - heads: [tp]\n"), "other.yaml")
    assert parse_spec(minimal("  - heads: tp\n")) != parse_spec(minimal("  - heads: dp\n"))
    assert isinstance(parse_spec(minimal("  - heads: tp\n")), Spec)
    assert MeshAxis("tp", 2) == parse_spec(minimal("  - heads: tp\n")).mesh.axes[1]
