"""How one dimension lies on the mesh: splitting, joining, taking parts, and when two are the same."""

from __future__ import annotations

import pytest

from graphpar.check.dims import (
    ONE,
    Dim,
    Factor,
    Wrong,
    agree,
    dimension,
    length,
    part,
    product,
    repeated,
    spell,
    split,
    whole,
)
from graphpar.check.rules import Trace, applied
from graphpar.check.value import Value, elementwise


def dim(text: str) -> Dim:
    """`3 2@tp 16 + 4@tp`: segments of factors with local sizes."""
    segments: list[list[Factor]] = []
    for segment in text.split(" + "):
        factors = [word.split("@") for word in segment.split()]
        segments.append([Factor(int(size), tuple(axes)) for size, *axes in factors])
    return dimension(segments)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("2@tp 16", "32@tp"),  # a cut factor and what is inside it are one block
        ("3 2@tp 16", "3 32@tp"),
        ("32@tp + 32@tp + 32@tp", "3 32@tp"),
        ("2 8@tp + 8@tp", "3 8@tp"),
        ("1@tp 4@tq", "4@tp@tq"),
        ("6 4", "24"),
    ],
)
def test_dimensions_that_hold_the_same_elements_agree(a: str, b: str) -> None:
    assert agree(dim(a), dim(b)) is not None
    assert length(dim(a)) == length(dim(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("32", "32@tp"),
        ("32@dp", "32@tp"),
        ("3 32@tp", "96@tp"),  # packed q, k, v cut by heads is not a cut into thirds
        ("4@tp@tq", "4@tq@tp"),
        ("2@tp 4@tq", "8@tp@tq"),
        ("8@tp + 4@tp", "12@tp"),
    ],
)
def test_dimensions_of_other_elements_do_not_agree(a: str, b: str) -> None:
    assert agree(dim(a), dim(b)) is None


def test_equal_elements_may_be_cut_over_any_axis() -> None:
    keys = product([dim("2@tp"), repeated(3)])
    assert agree(keys, dim("2@tp 3")) is not None
    assert agree(keys, dim("2@tp 3@tq")) == dim("2@tp 3@tq")
    assert agree(keys, dim("2@tq 3@tp")) is None


@pytest.mark.parametrize(
    ("whole_", "sizes", "parts"),
    [
        ("3 2@tp 16", [3, 32], ["3", "2@tp 16"]),
        ("3 2@tp 16", [3, 2, 16], ["3", "2@tp", "16"]),
        ("2@tp 1@tq 6", [2, 6], ["2@tp 1@tq", "6"]),  # factors of one element belong to what is outside them
        ("4@dp 7@tp", [4, 7], ["4@dp", "7@tp"]),
        ("32@tp", [4, 8], ["4@tp", "8"]),
    ],
)
def test_a_split_keeps_cuts_with_their_factors(whole_: str, sizes: list[int], parts: list[str]) -> None:
    assert split(dim(whole_), sizes) == [dim(p) for p in parts]
    assert agree(product([dim(p) for p in parts]), dim(whole_)) is not None


@pytest.mark.parametrize(("whole_", "sizes"), [("6@tp", [4, 2]), ("3@tp + 2@tp", [5, 1, 5]), ("2@tp 3", [3, 2])])
def test_a_split_across_factors_is_wrong(whole_: str, sizes: list[int]) -> None:
    with pytest.raises(Wrong):
        split(dim(whole_), sizes)


def test_a_part_is_whole_blocks_of_what_is_cut() -> None:
    assert part(dim("3 8@tp"), 8, 24) == dim("2 8@tp")
    assert part(dim("8@tp + 4@tp"), 8, 12) == dim("4@tp")
    assert part(whole(10), 2, 5) == whole(3)
    with pytest.raises(Wrong, match="other elements of the whole on each rank"):
        part(dim("8@tp"), 0, 4)
    with pytest.raises(Wrong, match="other elements"):
        part(dim("3 8@tp"), 4, 12)


def test_a_sum_of_parts_is_flattened_only_by_itself() -> None:
    assert product([ONE, dim("8@tp + 4@tp")]) == dim("8@tp + 4@tp")
    with pytest.raises(Wrong, match="cannot be one dimension"):
        product([whole(5), dim("8@tp + 4@tp")])


def test_a_dimension_is_spelled_as_in_the_comments_of_a_program() -> None:
    assert spell(dim("3 2@tp 16")) == "(3 2@tp 16)"
    assert spell(dim("4@tp@tq")) == "4@tp@tq"


def test_a_result_cut_twice_over_an_axis_is_wrong() -> None:
    cut, one = dim("2@tp"), ONE
    with pytest.raises(Wrong, match="only the diagonal"):
        elementwise([Value((cut, one)), Value((one, cut))], "add")


def test_a_cut_of_one_element_is_read_as_the_consumer_needs_it() -> None:
    cut, one = dim("1@tp"), ONE
    operands = [Value((cut, one)), Value((one, cut))]
    found = applied(lambda *values: elementwise(values, "add"), Trace(), operands, {})
    assert found.cut == {"tp"}
