"""Layers in stages, against every other way to cut them."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpar.pipeline.partition import balanced


def dearest(layers, pieces, before, behind):
    costs = [sum(layers[i] for i in piece) for piece in pieces]
    costs[0] += before
    costs[-1] += behind
    return max(costs)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.data(), st.integers(0, 12), st.integers(0, 12))
def test_no_other_cut_is_cheaper(layers, data, before, behind) -> None:
    stages = data.draw(st.integers(1, len(layers)))
    found = balanced(layers, stages, before, behind)
    assert [i for piece in found for i in piece] == list(range(len(layers))) and all(found)
    every = (
        [range(a, b) for a, b in zip((0, *cuts), (*cuts, len(layers)), strict=True)]
        for cuts in combinations(range(1, len(layers)), stages - 1)
    )
    assert dearest(layers, found, before, behind) == min(dearest(layers, p, before, behind) for p in every)


def test_layers_that_do_not_divide_come_first() -> None:
    assert list(map(len, balanced([1] * 7, 4))) == [2, 2, 2, 1]
    assert list(map(len, balanced([1] * 8, 4, behind=1))) == [3, 2, 2, 1]
    assert list(map(len, balanced([1] * 126, 8, behind=3)))[-1] < 16


def test_fewer_layers_than_stages_are_told() -> None:
    with pytest.raises(ValueError, match="3 layers for 4 stages"):
        balanced([1, 1, 1], 4)
