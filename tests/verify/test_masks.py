"""Dropout whose numbers are the layout's own: masks differ where values are parts, and nowhere else."""

import pytest
import torch

from graphpar.verify.masks import Drawn, independent

A, B = torch.arange(8.0), torch.arange(8.0) + 1
FIRST, ONE, OTHER = torch.rand(4), torch.rand(4), torch.rand(4)
ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("x", "numbers", "outcome"),
    [
        ((A, A), (ONE, ONE), "exact"),
        ((A, B), (ONE, OTHER), "exact"),
        ((A, B), (ONE, ONE), "failed"),
        ((A, A), (ONE, OTHER), "failed"),
        ((A, A[:4]), (ONE, OTHER), "exact"),
        ((ONES, ONES), (ONE, OTHER), "exact"),  # parts of a constant look alike
    ],
)
def test_masks_are_equal_where_values_are(x, numbers, outcome):
    ranks = [[Drawn(A, FIRST), Drawn(*one)] for one in zip(x, numbers, strict=True)]
    assert independent(ranks, [[0, 1]]).outcome == outcome


def test_the_call_and_the_ranks_are_named():
    found = independent([[Drawn(A, FIRST), Drawn(A, ONE)], [Drawn(A, FIRST), Drawn(B, ONE)]], [[0, 1]])
    assert found.detail == "call 2 of dropout: ranks 0 and 1 hold different parts and drop alike"


def test_ranks_must_drop_equally_often():
    with pytest.raises(ValueError):
        independent([[Drawn(A, ONE)], []], [[0, 1]])


def test_no_two_calls_of_a_rank_drop_alike():
    """Layers, and microbatches: the numbers of one are no others' again."""
    assert independent([[Drawn(A, ONE), Drawn(B, OTHER)]], [[0]]).outcome == "exact"
    found = independent([[Drawn(A, ONE), Drawn(B, ONE)]], [[0]])
    assert found.detail == "call 2 of dropout on rank 0 drops as call 1 does"


def test_stages_drop_apart():
    assert independent([[Drawn(A, ONE)], [Drawn(A, OTHER)]], [[0], [1]]).outcome == "exact"
    found = independent([[Drawn(A, ONE)], [Drawn(B, ONE)]], [[0], [1]])
    assert found.detail == "the stages at places 0 and 1 of the pipeline drop alike"


def test_what_runs_again_drops_as_before():
    first = Drawn(A, ONE)
    assert independent([[first, Drawn(A, ONE, again=True)]], [[0]]).outcome == "exact"
    found = independent([[first, Drawn(A, OTHER, again=True)]], [[0]])
    assert found.detail == "rank 0 drops otherwise when it runs a forward again: [8]"
