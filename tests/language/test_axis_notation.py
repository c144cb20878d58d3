"""Axes as text and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpar.errors import GraphparError, Span
from graphpar.notation import (
    ONE_AXIS,
    UNNAMED_AXIS,
    Axis,
    Item,
    Tensor,
    format_tensor,
    names_of,
    parse_axis,
    parse_tensor,
)

NAMES = [f"{letter}{index}" for letter in "abc" for index in range(8)]


@pytest.mark.parametrize(
    "text",
    [
        "d_model (3 heads d_head)",
        "(heads d_head + kv_heads d_head + kv_heads d_head) d_model",
        "(heads 3 d_head) d_model",
        "batch seq seq'",
        "batch (kv_heads q_group) seq seq'",
        "_ 1 3",
        "d_ff.0 d_ff.1 d_head.half",
        "(1 + seq) d_model",
        "(2 half + pass)",
    ],
)
def test_text_that_is_printed_as_it_was(text):
    assert format_tensor(parse_tensor(text)) == text


def test_the_parts_of_an_axis():
    heads, d_head = Item("heads"), Item("d_head")
    assert parse_axis("(3 heads d_head)") == ((Item(3), heads, d_head),)
    assert parse_axis("(heads d_head + 2)") == ((heads, d_head), (Item(2),))
    assert parse_axis("seq'") == ((Item("seq", primed=True),),)
    assert parse_tensor("1 _") == (ONE_AXIS, UNNAMED_AXIS)
    assert parse_axis("(heads)") == parse_axis("heads")
    assert names_of(parse_tensor("seq (3 heads d_head) seq' _ 1")) == ("seq", "heads", "d_head")


def test_placements_are_printed_behind_their_dimension():
    tensor = parse_tensor("(3 heads d_head) seq seq'")
    shards = {"heads": ("tp",), "seq": ("cp", "tp"), "seq'": ()}
    assert format_tensor(tensor, shards) == "(3 heads@tp d_head) seq@cp,tp seq'"


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    names = iter(draw(st.permutations(NAMES)))

    def item() -> Item:
        constant = draw(st.booleans())
        return Item(draw(st.integers(2, 99))) if constant else Item(next(names), draw(st.booleans()))

    def axis() -> Axis:
        return tuple(tuple(item() for _ in range(draw(st.integers(1, 3)))) for _ in range(draw(st.integers(1, 2))))

    return tuple(axis() for _ in range(draw(st.integers(1, 3))))


@given(tensors())
def test_any_tensor_survives_printing_and_parsing(tensor):
    assert parse_tensor(format_tensor(tensor)) == tensor


@pytest.mark.parametrize(
    ("text", "offset", "length"),
    [
        ("((a b) c)", 1, 1),
        ("(a (b + c))", 3, 1),
        ("a b a", 4, 1),
        ("(heads heads)", 7, 5),
        ("seq' seq'", 5, 4),
        ("(a d + b d) d", 12, 1),
        ("a, b", 1, 1),
        ("a * b", 2, 1),
        ("vocab@tp", 5, 1),
        ("a '", 2, 1),
        ("D", 0, 1),
        ("(a", 0, 1),
        ("a)", 1, 1),
        ("()", 1, 1),
        ("(a + )", 5, 1),
        ("(+ a)", 1, 1),
        ("(1 a)", 1, 1),
        ("(a 1)", 3, 1),
        ("0", 0, 1),
        ("03", 0, 2),
        ("", 0, 1),
        ("a + b", 2, 1),
    ],
)
def test_the_caret_is_on_the_mistake(text, offset, length):
    with pytest.raises(GraphparError) as caught:
        parse_tensor(text, Span("spec.yaml", 4, 11))
    (problem,) = caught.value.diagnostics
    assert problem.code == "bad-axes"
    assert problem.span == Span("spec.yaml", 4, 11 + offset, length)


def test_without_a_place_the_message_quotes_the_text():
    with pytest.raises(GraphparError, match=r"in `a, b`, character 2"):
        parse_tensor("a, b")
    with pytest.raises(GraphparError, match="one axis is expected"):
        parse_axis("a b")
