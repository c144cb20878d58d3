"""Orders that are searched for: against published rates, and what every order has to keep to."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from graphpar.schedules.actions import Order, every
from graphpar.schedules.clock import Costs, clock, incomplete
from graphpar.schedules.messages import blocked, placed
from graphpar.schedules.orders import order
from graphpar.schedules.search import zero_bubble

PUBLISHED = yaml.safe_load((Path(__file__).parent / "bubbles.yaml").read_text())
TIMES = {
    "alike": lambda p: Costs.even(p),
    "weights quick": lambda p: Costs.even(p, 1, 1, 0.3, 0.05),
    "weights slow": lambda p: Costs.even(p, 1, 0.8, 1.7, 0.2),
    "thirds": lambda p: Costs.even(p, 1 / 3, 0.1, 0.7, 0.1),
    "messages slow": lambda p: Costs.even(p, link=2.5),
    "weights free": lambda p: Costs.even(p, weights=0),
    "all free": lambda p: Costs.even(p, 0, 0, 0),
    "slower and slower": lambda p: Costs.by_work([1 + 0.1 * s for s in range(p)]),
    "one slow": lambda p: Costs.by_work([1 + (s == p // 2) for s in range(p)]),
}


@cache
def searched(row: int, ranks: float) -> tuple[Order, float]:
    """The order of a published row with memory as of 1f1b on so many times the ranks, and its bubble."""
    given = PUBLISHED[row]
    costs = Costs.even(given["p"], given["F"], given["B"], given["W"], given["C"])
    made = zero_bubble(given["m"], costs, ranks * given["p"], given["M"])
    return made, clock(made, costs).bubble


def peaks(made: Order, share: float) -> list[float]:
    """The most activations that each rank holds at once; between the halves of a backward, a share of them."""
    found = dict.fromkeys(made, 0.0)
    held = dict.fromkeys(made, 0.0)
    for rank, action in every(made):
        held[rank] += {"F": 1, "I": share - 1, "W": -share}[action.kind]
        found[rank] = max(found[rank], held[rank])
    return list(found.values())


@pytest.mark.parametrize("row", range(len(PUBLISHED)))
def test_the_rates_are_the_published_ones(row: int) -> None:
    """Equal to the four published digits: neither worse nor better."""
    assert searched(row, 1)[1] == pytest.approx(PUBLISHED[row]["zb-h1"], abs=1e-4)
    assert searched(row, 2)[1] == pytest.approx(PUBLISHED[row]["zb-2p"], abs=1e-4)


@pytest.mark.parametrize("row", range(1, len(PUBLISHED)))
def test_all_that_is_left_is_the_first_ranks_wait_for_its_first_gradient(row: int) -> None:
    """The gradient is p - 1 ranks there and back away; the first rank fills that with 2 (p - 1) forwards. All published
    rates but the first, where the microbatches run out before the weights fill every gap, are this one."""
    p, m, F, B, W, C = (PUBLISHED[row][key] for key in "pmFBWC")
    wait = (p - 1) * (F + B + 2 * C) - 2 * (p - 1) * F
    assert searched(row, 2)[1] == pytest.approx(wait / (m * (F + B + W) + wait), abs=1e-9)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("row", range(len(PUBLISHED)))
def test_published_orders_are_whole_and_within_the_limit(row: int, ranks: int) -> None:
    given, made = PUBLISHED[row], searched(row, ranks)[0]
    assert incomplete(made, given["m"]) == []
    assert max(peaks(made, given["M"])) <= ranks * given["p"] + 1e-9


@pytest.mark.parametrize("row", [0, 1, 2, 3])
def test_more_memory_is_no_slower_at_the_published_times(row: int) -> None:
    """Not so for all times: the search is a heuristic."""
    bubbles = [searched(row, ranks)[1] for ranks in (1, 1.25, 1.5, 2, 3)]
    assert all(more <= less + 1e-9 for less, more in pairwise(bubbles))


@pytest.mark.parametrize("row", [2, 3])
def test_with_three_times_the_memory_the_first_gradient_may_come_late(row: int) -> None:
    """One more forward ahead of it, and the first rank's wait is gone as well."""
    assert searched(row, 3)[1] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("p", [1, 2, 4])
def test_every_order_ends_is_whole_and_within_the_limit(p: int, name: str) -> None:
    costs = TIMES[name](p)
    for m in (1, 3, 8):
        for limit in {1, 1.5, 2, p, 2 * p}:
            for share in (0.4, 1):
                made = zero_bubble(m, costs, limit, share)
                assert list(made) == list(range(p))
                assert incomplete(made, m) == []
                assert blocked(placed(made)) == {}
                assert max(peaks(made, share)) <= limit + 1e-9
                assert len(clock(made, costs).runs) == 3 * m * p


@pytest.mark.parametrize("name", TIMES)
def test_with_the_memory_of_1f1b_no_order_takes_longer_than_it(name: str) -> None:
    for p, m in [(2, 4), (4, 4), (4, 8), (4, 20), (8, 16)]:
        costs = TIMES[name](p)
        found = clock(zero_bubble(m, costs, p), costs)
        assert found.cost <= clock(order("1f1b", p, 1, m), costs).cost + 1e-9
        assert all(found.in_flight(rank) <= p for rank in range(p))  # held until the weights' half has run


def test_times_alike_and_twice_the_memory_leave_no_bubble() -> None:
    for p, m in [(2, 6), (4, 12), (8, 24)]:
        costs = Costs.even(p)
        assert clock(zero_bubble(m, costs, 2 * p), costs).bubble == 0


def test_there_is_room_for_one_microbatch_or_none_runs() -> None:
    with pytest.raises(ValueError, match=r"0.5 activations leaves no room"):
        zero_bubble(4, Costs.even(2), 0.5)
