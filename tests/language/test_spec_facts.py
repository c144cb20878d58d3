"""Facts about spec files that do not come from this code: what YAML readers do, and what other systems let pass."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from graphpar.errors import GraphparError
from graphpar.language import parse_spec
from graphpar.language.check import check_names

EIGHT = sorted((Path(__file__).parent / "eight").glob("*.yaml"))


def codes(text: str) -> set[str]:
    with pytest.raises(GraphparError) as caught:
        parse_spec(text)
    return {diagnostic.code for diagnostic in caught.value.diagnostics}


def spec_with(rule: str, mesh: str = "{tp: 2}") -> str:
    return f"version: 1\nmesh: {mesh}\nlayout:\n  - {rule}\n"


@pytest.mark.parametrize("layout", ["d_ff:x heads:y", "d_ff:x,heads:y", "d_ff:x; heads:y", "d_ff;heads", "x;4"])
def test_a_layout_in_one_string_is_not_offered(layout):
    # Mesh-TensorFlow takes the first three as equal.
    assert codes(f"version: 1\nmesh: {{x: 2, y: 2}}\nlayout: {layout}\n") == {"wrong-type"}


def test_a_key_given_twice_is_refused():
    assert yaml.safe_load("mesh: {tp: 2, tp: 4}") == {"mesh": {"tp": 4}}
    assert codes(spec_with("heads: tp", "{tp: 2, tp: 4}")) == {"duplicate-key"}
    assert codes(spec_with("heads: tp") + "strict: true\nstrict: false\n") == {"duplicate-key"}


READ_OTHERWISE = [("8:8", 488), ("010", 8), ("0x10", 16), ("1_000", 1000), ("no", False), ("off", False), ("on", True)]


@pytest.mark.parametrize(("scalar", "read"), READ_OTHERWISE)
def test_no_scalar_is_read_as_something_else(scalar, read):
    assert yaml.safe_load(scalar) == read
    assert codes(spec_with("heads: tp", f"{{tp: {scalar}}}")) == {"ambiguous-scalar"}
    assert codes(spec_with(f"heads: {scalar}")) == {"ambiguous-scalar"}
    assert codes(spec_with("heads: tp") + f"model: {{args: {{x: {scalar}}}}}\n") == {"ambiguous-scalar"}


@pytest.mark.parametrize("key", ["on", "no", "yes", "off", "On", "NO"])
def test_no_key_is_read_as_a_truth_value(key):
    assert list(yaml.safe_load(f"{key}: 1")) in ([True], [False])
    assert codes(spec_with("heads: tp", f"{{{key}: 2, tp: 2}}")) == {"ambiguous-scalar"}
    assert codes(spec_with(f"{key}: tp")) == {"ambiguous-scalar"}
    assert codes(spec_with("heads: tp") + f"{key}: 1\n") == {"ambiguous-scalar"}
    assert "ambiguous-scalar" in codes(spec_with("heads: tp") + f"uneven: {{{key}: pad}}\n")
    assert codes(spec_with("heads: tp") + f"model: {{args: {{{key}: 1}}}}\n") == {"ambiguous-scalar"}


@pytest.mark.parametrize("key", ["true", "False", "null", "~"])
def test_no_key_is_a_value(key):
    assert codes(spec_with("heads: tp") + f"model: {{args: {{{key}: 1}}}}\n") == {"wrong-type"}
    assert codes(spec_with(f"{key}: tp")) == {"wrong-type"}
    assert codes(spec_with(f"heads: {key}")) == {"wrong-type"}


def test_truth_values_have_three_spellings():
    model = parse_spec(spec_with("heads: tp") + "model: {args: {a: False, b: TRUE, c: 'true'}}\nstrict: False\n").model
    assert model is not None and model.args == {"a": False, "b": True, "c": "true"}


def test_a_number_with_an_exponent_is_a_number():
    assert yaml.safe_load("1e-5") == "1e-5"
    model = parse_spec(spec_with("heads: tp") + "model: {args: {eps: 1e-5}}\n").model
    assert model is not None and model.args == {"eps": 1e-5}


def test_stars_and_indexes_that_yaml_cannot_read_are_explained():
    regions = "regions:\n  - at: {}\n    only: true\n"
    assert codes(spec_with("heads: tp") + regions.format("*.mlp")) == {"leading-star"}
    assert codes(spec_with("heads: tp") + regions.format("*mlp")) == {"leading-star"}
    assert codes(spec_with("heads: tp") + regions.format("[a[0:2], b]")) == {"bracket-in-flow"}
    assert codes(spec_with("heads: tp") + "regions: [{at: a[0:2], only: true}]\n") == {"bracket-in-flow"}
    assert parse_spec(spec_with("heads: tp") + regions.format("a[0:2], b")).regions[0].only


def test_words_that_do_not_exist_are_never_skipped():
    known: dict[str, int | None] = {"heads": 4, "d_ff": 64}
    assert codes(spec_with("heads: mp")) == {"unknown-mesh-axis"}
    (problem,) = check_names(parse_spec(spec_with("mlp: tp")), known, {})
    assert problem.code == "unknown-dimension"
    assert check_names(parse_spec(spec_with("d_ff: tp")), known, {}) == ()


def test_the_styles_of_a_mixtral_plan_are_two_words_here():
    # colwise, rowwise, packed_colwise: d_ff; the expert styles: `moe`.
    (rule,) = parse_spec(spec_with("d_ff: tp")).rules
    assert [str(r) for r in parse_spec(spec_with("d_ff: tp") + "moe: {experts: tp}\n").rules] == [
        str(rule),
        "experts: tp",
    ]


def test_a_layout_needs_few_names():
    # The same in MaxText's base configuration takes about 45 logical axis names.
    words: set[str] = set()
    for path in EIGHT:
        if path.stem[0] in "246":
            loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
            words |= {name for rule in loaded["layout"] for name in rule}
            words |= {"experts"} if "moe" in loaded else set()
    assert len(words) <= 8, words


@pytest.mark.parametrize("path", EIGHT, ids=lambda path: path.stem)
def test_any_yaml_reader_reads_the_eight_specs_as_they_are_meant(path):
    text = path.read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)
    assert loaded["version"] == 1
    assert all(isinstance(size, int) or size == "rest" for axis, size in loaded["mesh"].items() if axis != "aliases")
    for rule in loaded["layout"]:
        ((name, target),) = rule.items()
        assert isinstance(name, str)
        assert isinstance(target, str) or all(isinstance(axis, str) for axis in target)
    assert all(isinstance(region["at"], str) for region in loaded.get("regions", []))
    if {"store", "context"} & set(loaded):
        assert codes(text) == {"not-available"}
    else:
        assert [rule.name for rule in parse_spec(text).layout] == [name for rule in loaded["layout"] for name in rule]


def test_the_numbers_of_the_eight_specs_are_numbers():
    assert len(EIGHT) == 8
    loaded = {path.stem[0]: yaml.safe_load(path.read_text(encoding="utf-8")) for path in EIGHT}
    assert loaded["7"]["numerics"]["check"] == {"ranks": 8, "atol": 1e-5}
    assert loaded["5"]["pipeline"]["schedule"] == "1f1b"
    assert loaded["5"]["pipeline"]["stages"] == ["embed, layers[0:4]", "layers[4:8], ln_f, lm_head"]
    assert loaded["3"]["store"][0]["min_numel"] == 65536
