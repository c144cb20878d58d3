"""Dropout whose numbers are the layout's own: masks differ where values are parts, and nowhere else."""

import pytest
import torch

from graphpar.verify.masks import Drawn, independent

A, B = torch.arange(8.0), torch.arange(8.0) + 1
ONE, OTHER = torch.rand(4), torch.rand(4)
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
    ranks = [[Drawn(A, ONE), Drawn(*one)] for one in zip(x, numbers, strict=True)]
    assert independent(ranks).outcome == outcome


def test_the_call_and_the_ranks_are_named():
    found = independent([[Drawn(A, ONE), Drawn(A, ONE)], [Drawn(A, ONE), Drawn(B, ONE)]])
    assert found.detail == "call 2 of dropout: ranks 0 and 1 hold different parts and drop alike"


def test_ranks_must_drop_equally_often():
    with pytest.raises(ValueError):
        independent([[Drawn(A, ONE)], []])
