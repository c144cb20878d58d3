"""Which layers a stage has: a row of costs in pieces whose dearest is as cheap as can be."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

_Cut: TypeAlias = tuple[float, float, tuple[int, ...]]  # dearest piece, sum of squares, where the pieces begin


def balanced(layers: Sequence[float], stages: int, before: float = 0, behind: float = 0) -> tuple[range, ...]:
    """The layers of each stage, in order and at least one each.

    What comes before the layers is the first stage's, what comes behind them the last one's. Of several cuts that cost
    the same, the most even one is taken, and then the one whose later stages are shorter. Raises ValueError if there
    are too few layers.
    """
    if len(layers) < stages:
        raise ValueError(f"{len(layers)} layers for {stages} stages")
    sums = [0.0, *accumulate(layers)]

    def cost(first: int, end: int) -> float:
        ends = (before if first == 0 else 0) + (behind if end == len(layers) else 0)
        return sums[end] - sums[first] + ends

    def add(found: _Cut, first: int, end: int) -> _Cut:
        dearest, squares, starts = found
        piece = cost(first, end)
        return max(dearest, piece), squares + piece**2, (*starts, first)

    best = {end: add((0, 0, ()), 0, end) for end in range(1, len(layers) + 1)}  # in one piece, up to `end`
    for piece in range(2, stages + 1):
        best = {
            end: min((add(best[first], first, end) for first in range(piece - 1, end)), key=_later_shorter)
            for end in range(piece, len(layers) + 1)
        }
    starts = best[len(layers)][2]
    return tuple(range(a, b) for a, b in zip(starts, (*starts[1:], len(layers)), strict=True))


def _later_shorter(found: _Cut) -> tuple[float, float, tuple[int, ...]]:
    dearest, squares, starts = found
    return dearest, squares, tuple(-start for start in starts)
