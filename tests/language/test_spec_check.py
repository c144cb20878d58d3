"""A spec against the names of a model."""

from __future__ import annotations

import pytest

from graphpar.errors import GraphparError
from graphpar.language import parse_spec
from graphpar.language.check import check_data_axes, check_names
from graphpar.language.unmatched import ModelNames

KNOWN: dict[str, int | None] = {"batch": None, "seq": None, "heads": 12, "d_head": 64, "d_model": 768}
KNOWN |= {"d_ff.0": 8, "d_ff.1": 8}
MODEL = ModelNames(
    paths=["h.0.attn", "h.1.attn", "h.2.mlp", "ln_f"],
    parameters=["h.0.attn.c_proj.weight", "ln_f.weight"],
    ops=[("sdpa", "h.0.attn")],
    lines=[("model.py", 3)],
    lists={"h": 3},
    aliases={"layers": "h"},
)
NOWHERE = [
    *("atn", "layers[3]", "layers[0:4]", "layers[0].mlp", "op:linear", "op:sdpa@ln_f", "line:model.py:4"),
    *("line:other.py:3", "input:x", "layers.attn", "ln_f[0]", "/attn"),
]


def found(more: str, layout: str = "  - heads: tp\n", mesh: str = "{dp: 2, tp: 2}") -> list[tuple[str, int]]:
    spec = parse_spec(f"version: 1\nmesh: {mesh}\nlayout:\n{layout}{more}")
    return [(d.code, d.span.line if d.span else 0) for d in check_names(spec, KNOWN, {"d_model": "wte"}, MODEL)]


def test_a_spec_that_fits_has_no_problems():
    layout = "  - batch: dp\n  - heads: tp\n  - seq': none\n  - d_ff.1: tp\n"
    dims = "dims: {d_model: {size: 768, is: (heads d_head)}, seq: 1024}\n"
    names = "names: {attn.c_proj.weight: d_model (heads d_head)}\n"
    regions = "regions:\n  - at: layers[-1].mlp, op:sdpa@attn, line:model.py:3\n    layout: [heads: none]\n"
    assert found(dims + names + regions, layout) == []


def test_names_are_checked_wherever_they_occur():
    assert found("", "  - d_ff: tp\n") == [("unknown-dimension", 4)]
    assert found("uneven: {vocab: pad}\n") == [("unknown-dimension", 5)]
    assert found("dims: {vocab: 97}\n") == [("unknown-dimension", 5)]
    assert found("dims: {d_model: {is: (haeds d_head)}}\n") == [("unknown-dimension", 5)]
    assert found("regions:\n  - at: ln_f\n    layout: [head: tp]\n") == [("unknown-dimension", 7)]


def test_declared_sizes_are_compared_with_the_model():
    assert found("dims: {d_model: 512}\n") == [("size-mismatch", 5)]
    assert found("dims: {heads: {multiple_of: 5}}\n") == [("size-mismatch", 5)]
    assert found("dims: {seq: 4096, heads: {multiple_of: 4}}\n") == []


@pytest.mark.parametrize("selector", NOWHERE)
def test_a_selector_that_matches_nothing_is_an_error(selector):
    regions = f"regions:\n  - at: ln_f, {selector}\n    layout: [heads: none]\n"
    assert found(regions) == [("selector-matches-nothing", 6)]


def about_experts(rules: str, more: str = "", mesh: str = "{dp: 2, tp: 2, ep: 2}") -> list[str]:
    text = f"version: 1\nmesh: {mesh}\nlayout:\n{rules}{more}"
    try:
        spec = parse_spec(text)
    except GraphparError as error:
        return [f"{d.span.line if d.span else 0} {d.code}" for d in error.diagnostics]
    return [d.code for d in check_names(spec, {**KNOWN, "experts": 8}, {}, MODEL)]


def test_a_list_cannot_give_experts_an_axis_of_tokens():
    mistake = "experts-on-data-axis"
    assert about_experts("  - batch: dp\n  - experts: ep\n") == []
    assert about_experts("  - batch: dp\n  - experts: none\n") == []
    assert about_experts("  - experts: dp\n  - batch: dp\n") == [f"4 {mistake}"]
    assert about_experts("  - seq: tp\n  - experts: [ep, tp]\n") == [f"5 {mistake}"]
    assert about_experts("  - seq': tp\n  - experts.1: tp\n") == [f"5 {mistake}"]
    region = "regions:\n  - at: ln_f\n    only: {}\n    layout: [{}]\n"
    assert about_experts("  - batch: dp\n", region.format("false", "experts: dp")) == [f"8 {mistake}"]
    assert about_experts("  - experts: tp\n", region.format("false", "seq: tp")) == [f"4 {mistake}"]
    assert about_experts("  - seq: tp\n", region.format("true", "experts: tp")) == []


def test_experts_are_counted_once_their_ranks_are_known():
    for ranks in (1, 2, 4, 8):
        assert about_experts("  - batch: ep\n", "moe: {experts: ep}\n", f"{{ep: {ranks}}}") == []
    for ranks in (3, 5, 16):
        assert about_experts("  - batch: ep\n", "moe: {experts: ep}\n", f"{{ep: {ranks}}}") == ["not-divisible"]
    assert about_experts("  - batch: ep\n", "moe: {experts: ep}\n", "{ep: rest}") == []


@pytest.mark.parametrize(
    ("experts", "ranks", "fix"),
    [
        (8, 3, "ep: 2   # in `mesh`; or ep: 4"),
        (7, 2, "ep: 7   # in `mesh`"),
        (8, 16, "ep: 8   # in `mesh`"),
        (1, 2, "delete `moe`"),
    ],
)
def test_experts_that_do_not_divide_are_told_which_ranks_would(experts, ranks, fix):
    spec = parse_spec(f"version: 1\nmesh: {{ep: {ranks}}}\nlayout: []\nmoe: {{experts: ep}}\n")
    (problem,) = check_names(spec, {"experts": experts}, {})
    assert problem.fix == fix and f"{experts} mod {ranks} = {experts % ranks}" in problem.why
    assert problem.span == spec.rules[0].span


def test_a_names_entry_must_be_the_end_of_a_parameter():
    assert found("names: {c_proj: d_model heads}\n") == [("selector-matches-nothing", 5)]
    assert found("names: {c_fc.weight: d_model heads}\n") == [("selector-matches-nothing", 5)]


def test_only_tokens_are_cut_by_the_axes_of_the_batch():
    def on_data_axes(layout: str, mesh: str = "{dp: 2, tp: 2}") -> list[str]:
        spec = parse_spec(f"version: 1\nmesh: {mesh}\nlayout:\n{layout}")
        return [f"{d.span.line} {d.code}" for d in check_data_axes(spec) if d.span]

    mistake = "not-a-token-dimension"
    assert on_data_axes("  - batch: dp\n  - seq: dp\n  - seq': dp\n  - heads: tp\n") == []
    assert on_data_axes("  - d_model: dp\n  - batch: dp\n") == [f"4 {mistake}"]
    assert on_data_axes("  - batch: dp\n  - d_ff: [tp, dp]\n") == [f"5 {mistake}"]
    assert on_data_axes("  - batch: dp\n  - d_ff: ep\n", "{dp: 2, aliases: {ep: dp}}") == [f"5 {mistake}"]
    assert on_data_axes("  - d_model: dp\n") == []
