"""Rank numbers, coordinates and groups."""

from graphpar.runtime.grid import coordinates, groups, rank_at

SIZES = {"pp": 2, "dp": 2, "tp": 3}


def test_the_last_axis_counts_fastest():
    assert coordinates(SIZES, 7) == {"pp": 1, "dp": 0, "tp": 1}
    assert [rank_at(SIZES, coordinates(SIZES, rank)) for rank in range(12)] == list(range(12))


def test_groups_along_an_axis_differ_in_that_axis_only():
    assert groups(SIZES, ("tp",)) == [(0, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11)]
    assert groups(SIZES, ("pp",)) == [(0, 6), (1, 7), (2, 8), (3, 9), (4, 10), (5, 11)]


def test_a_product_counts_through_its_first_axis_slowest():
    assert groups(SIZES, ("pp", "tp"))[0] == (0, 1, 2, 6, 7, 8)
    assert groups(SIZES, ("tp", "pp"))[0] == (0, 6, 1, 7, 2, 8)
    assert groups(SIZES, ("pp", "dp", "tp")) == [tuple(range(12))]
