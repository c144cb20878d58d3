"""Which modules and ops a selector takes in."""

from __future__ import annotations

import pytest

from graphpar.errors import GraphparError, Span
from graphpar.language.selectors import Selector, matches, parse_selectors, selects

LISTS = {"transformer.h": 12, "transformer.h.0.experts": 3}
ALIASES = {"layers": "transformer.h"}
FIRST, LAST = "transformer.h.0", "transformer.h.11"


def one(text: str) -> Selector:
    (selector,) = parse_selectors(text, Span("spec.yaml", 1, 1))
    return selector


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("attn", f"{FIRST}.attn.c_attn", True),
        ("attn", f"{FIRST}.mlp.c_attn", False),
        ("tn", f"{FIRST}.attn", False),
        ("h.0.attn", f"{FIRST}.attn", True),
        ("attn.c_attn", f"{FIRST}.attn", False),
        ("/transformer.h", f"{LAST}.mlp", True),
        ("/h", f"{LAST}.mlp", False),
        ("/attn", f"{FIRST}.attn", False),
        ("h.*.attn", f"{LAST}.attn.c_proj", True),
        ("c_*", f"{FIRST}.mlp.c_fc", True),
        ("c_??", f"{FIRST}.mlp.c_proj", False),
        ("layers", f"{FIRST}.mlp", True),
        ("layers", "transformer.ln_f", False),
        ("layers[0]", f"{FIRST}.mlp", True),
        ("layers[0]", f"{LAST}.mlp", False),
        ("layers[-1].mlp", f"{LAST}.mlp.c_fc", True),
        ("layers[-1].mlp", f"{LAST}.attn", False),
        ("layers[-12]", FIRST, True),
        ("layers[0:4]", "transformer.h.3.attn", True),
        ("layers[0:4]", "transformer.h.4.attn", False),
        ("layers[-2:]", "transformer.h.10", True),
        ("layers[:-1]", LAST, False),
        ("layers[:]", LAST, True),
        ("h[2:4].mlp", "transformer.h.2.mlp", True),
        ("experts[-1]", f"{FIRST}.experts.2.w1", True),
        ("layers[0].experts[0:2]", f"{FIRST}.experts.2", False),
        ("/layers[0]", FIRST, True),
        ("x.layers[0]", FIRST, False),
        ("input:idx", "input:idx", True),
        ("input:idx", "output:idx", False),
        ("output:loss", "output:loss", True),
    ],
)
def test_modules_are_matched_at_the_end_of_their_path_with_all_below(text, path, expected):
    assert matches(one(text), path, lists=LISTS, aliases=ALIASES) is expected


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("c_proj.weight", f"{FIRST}.attn.c_proj.weight", True),
        ("c_proj", f"{FIRST}.attn.c_proj.weight", False),
        ("layers[0].attn.c_proj.weight", f"{FIRST}.attn.c_proj.weight", True),
        ("/lm_head.weight", "lm_head.weight", True),
    ],
)
def test_a_parameter_is_selected_by_its_whole_end(text, path, expected):
    assert selects(one(text), path, lists=LISTS, aliases=ALIASES) is expected


def test_a_module_list_may_bear_the_name_layers_itself():
    lists, aliases = {"model.layers": 4}, {"layers": "model.layers"}
    assert matches(one("layers[-1].mlp"), "model.layers.3.mlp", lists=lists, aliases=aliases)
    assert matches(one("layers[3]"), "model.layers.3.mlp", lists=lists)
    assert not matches(one("layers[-1]"), "model.layers.3.mlp")


def test_an_op_is_selected_by_kind_and_place():
    assert matches(one("op:sdpa"), f"{FIRST}.attn", op="sdpa")
    assert not matches(one("op:sdpa"), f"{FIRST}.attn", op="linear")
    assert not matches(one("op:sdpa"), f"{FIRST}.attn")
    assert matches(one("op:sdpa@layers[0:4]"), f"{FIRST}.attn", op="sdpa", lists=LISTS, aliases=ALIASES)
    assert not matches(one("op:sdpa@layers[0:4]"), f"{LAST}.attn", op="sdpa", lists=LISTS, aliases=ALIASES)
    assert matches(one("op:mylib::rope"), "", op="mylib::rope")
    assert matches(one("op:*norm"), "", op="layer_norm")


def test_a_line_is_selected_by_the_end_of_its_file_name():
    assert matches(one("line:model.py:57"), "lm_head", line=("/src/nano/model.py", 57))
    assert matches(one("line:nano/model.py:57"), "lm_head", line=("/src/nano/model.py", 57))
    assert not matches(one("line:odel.py:57"), "lm_head", line=("/src/nano/model.py", 57))
    assert not matches(one("line:model.py:57"), "lm_head", line=("model.py", 58))
    assert not matches(one("line:model.py:57"), "lm_head")


def test_alternatives_keep_their_place_in_the_text():
    first, second = parse_selectors("layers[0].mlp,  op:sdpa", Span("spec.yaml", 3, 9))
    assert (first.text, first.span.column, first.span.length) == ("layers[0].mlp", 9, 13)
    assert (second.text, second.span.column, second.span.length) == ("op:sdpa", 25, 7)


@pytest.mark.parametrize(
    "text", ["", "a,", "a..b", "a.", "[0]", "a[", "a[0", "a[x]", "a[]", "a[1:2:3]", "**", "a b", "op:", "op:x@"]
)
def test_what_is_no_selector_is_refused(text):
    with pytest.raises(GraphparError) as caught:
        parse_selectors(text, Span("spec.yaml", 1, 1))
    assert {diagnostic.code for diagnostic in caught.value.diagnostics} == {"bad-selector"}
