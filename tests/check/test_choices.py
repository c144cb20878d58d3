"""The check of operations that choose, order, count and place: what they need whole must not be cut."""

from __future__ import annotations

import pytest

from graphpar.check import choices
from graphpar.check.dims import Factor, Wrong, whole
from graphpar.check.value import Value

CUT = ((Factor(4, ("dp",)),),)
PLAIN = whole(4)


def value(*dims: object) -> Value:
    return Value(tuple(dims), grad=True)  # type: ignore[arg-type]


def numbers(*dims: object) -> Value:
    return Value(tuple(dims))  # type: ignore[arg-type]


WRONG = {
    "a choice from a part": lambda: choices.topk(value(PLAIN, CUT), 2),
    "an order of a part": lambda: choices.sort(value(CUT, PLAIN), 0),
    "the largest of a part": lambda: choices.extreme(value(PLAIN, CUT), -1),
    "elements of a part": lambda: choices.gather(value(PLAIN, CUT), 1, numbers(PLAIN, PLAIN)),
    "elements put into a part": lambda: choices.scatter(value(PLAIN, CUT), 1, numbers(PLAIN, PLAIN), 1.0),
    "a part put into the whole": lambda: choices.scatter(value(PLAIN, PLAIN), 1, numbers(PLAIN, CUT), 1.0),
    "a part of slices added": lambda: choices.index_add(value(PLAIN, PLAIN), 0, numbers(CUT), value(CUT, PLAIN)),
    "groups of a part of the rows": lambda: choices.grouped_matmul(
        value(CUT, PLAIN), value(PLAIN, PLAIN, PLAIN), numbers(PLAIN)
    ),
    "a part of the groups": lambda: choices.grouped_matmul(
        value(PLAIN, PLAIN), value(CUT, PLAIN, PLAIN), numbers(PLAIN)
    ),
    "offsets that are summands": lambda: choices.grouped_matmul(
        value(PLAIN, PLAIN), value(PLAIN, PLAIN, PLAIN), Value((PLAIN,), partial=frozenset({"dp"}))
    ),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_needs_all_elements_is_not_done_on_a_part(words: str) -> None:
    with pytest.raises(Wrong):
        WRONG[words]()


def test_other_dimensions_may_be_cut() -> None:
    values, at = choices.topk(value(CUT, PLAIN), 2)
    assert values.dims == at.dims == (CUT, whole(2))
    assert values.grad and not at.grad
    assert choices.gather(value(CUT, PLAIN), 1, numbers(CUT, whole(2))).dims == (CUT, whole(2))
    assert choices.scatter(value(CUT, PLAIN), 1, numbers(CUT, whole(2)), 1.0).dims == (CUT, PLAIN)


def test_counts_of_a_part_are_a_summand() -> None:
    counts = choices.histc(numbers(CUT), bins=8)
    assert counts.partial == {"dp"} and not counts.grad


def test_a_product_of_groups_over_a_cut_dimension_is_a_summand() -> None:
    made = choices.grouped_matmul(value(PLAIN, CUT), value(PLAIN, CUT, PLAIN), numbers(PLAIN))
    assert made.partial == {"dp"} and made.dims == (PLAIN, PLAIN)
