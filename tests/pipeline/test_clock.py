"""Orders and their times against closed forms and published numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from graphpar.language.schedules import SCHEDULES
from graphpar.schedules.actions import Action, Order, homes, parse, spell
from graphpar.schedules.clock import Costs, Stuck, clock, incomplete, needs
from graphpar.schedules.orders import order

PUBLISHED = yaml.safe_load((Path(__file__).parent / "bubbles.yaml").read_text())
SIZES = [(2, 4), (4, 8), (4, 4), (3, 9), (8, 16)]


def timeline(name: str, ranks: int, stages: int, microbatches: int, costs: Costs | None = None):
    return clock(order(name, ranks, stages, microbatches), costs or Costs.even(ranks * stages))


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_clocks_are_the_closed_forms(p: int, m: int) -> None:
    """(m + p - 1) of forward and whole backward together: GPipe 2.3; interleaved has a v-th of the bubble."""
    for name in ("gpipe", "1f1b"):
        assert timeline(name, p, 1, m).cost == 3 * (m + p - 1)
    for v in (2, 3):
        found = timeline("interleaved", p, v, m) if m % p == 0 else None
        assert found is None or found.cost == 3 * (m * v + p - 1)  # in units of one of its stages


@pytest.mark.parametrize(("p", "m"), SIZES)
def test_what_is_in_flight_is_the_closed_form(p: int, m: int) -> None:
    for rank in range(p):
        assert timeline("gpipe", p, 1, m).in_flight(rank) == m
        assert timeline("1f1b", p, 1, m).in_flight(rank) == min(m, p - rank)
        assert timeline("zero_bubble", p, 1, m).in_flight(rank) <= p


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['model']}-{row['p']}x{row['m']}")
def test_published_bubbles(row: dict[str, float]) -> None:
    p, m, v = int(row["p"]), int(row["m"]), int(row["v"])
    costs = Costs.even(p, row["F"], row["B"], row["W"], row["C"])
    chunks = Costs.even(p * v, row["F"] / v, row["B"] / v, row["W"] / v, row["C"])
    assert timeline("1f1b", p, 1, m, costs).bubble == pytest.approx(row["1f1b"], abs=1e-4)
    assert timeline("zero_bubble", p, 1, m, costs).bubble == pytest.approx(row["zb-h1"], abs=1e-4)
    assert clock(zb_h2(p, m), costs).bubble == pytest.approx(row["zb-h2"], abs=1e-4)
    made = order("interleaved", p, v, m)
    assert clock(made, chunks, first_of_a_round(p, made)).bubble == pytest.approx(row["interleaved"], abs=1e-4)
    assert clock(made, chunks).bubble > row["interleaved"]  # every microbatch waits for its input


def zb_h2(ranks: int, microbatches: int) -> Order:
    """Enough forwards ahead that the first gradient finds every rank busy; later ranks put gradients of weights off."""
    made: Order = {}
    for rank in range(ranks):
        ahead = min(microbatches, 2 * (ranks - 1 - rank) + 1)
        words = [("F", m) for m in range(ahead)]
        for m in range(microbatches):
            words += [("I", m), *([("F", m + ahead)] if m + ahead < microbatches else [])]
            words += [("W", m - 2 * rank)] if m >= 2 * rank else []
        words += [("W", m) for m in range(max(0, microbatches - 2 * rank), microbatches)]
        made = {**made, rank: tuple((Action(rank, kind, m),) for kind, m in words)}
    return made


def first_of_a_round(ranks: int, made: Order):
    """As the published numbers were made: where a message comes round to the first rank, or goes back from it to the
    last, only the first microbatch of each round waits for it."""
    place = homes(made)

    def rule(action: Action, stages: int) -> list[Action]:
        def near(other: Action) -> bool:
            return abs(place[other.stage] - place[action.stage]) <= 1 or action.microbatch % ranks == 0

        return [other for other in needs(action, stages) if near(other)]

    return rule


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("m", [1, 2, 3, 4, 8])
def test_every_order_is_whole_and_ends_or_there_is_none(name: str, m: int) -> None:
    for p in (1, 2, 4):
        for v in (1, 2, 3):
            if not SCHEDULES[name].least <= v <= SCHEDULES[name].most:
                continue
            try:
                made = order(name, p, v, m)
            except ValueError:
                assert name in ("interleaved", "zero_bubble", "dualpipev")
                continue
            assert incomplete(made, m) == []
            assert homes(made) == {s: SCHEDULES[name].rank(s, p) for s in range(p * v)}
            assert len(clock(made, Costs.even(p * v)).runs) == sum(len(s) for steps in made.values() for s in steps)
            assert all(parse(spell(step)) == step for steps in made.values() for step in steps)


def test_a_wait_without_end_is_told() -> None:
    made = dict(order("1f1b", 2, 1, 2))
    made[1] = made[1][::-1]
    with pytest.raises(Stuck, match="rank 1 waits at 1B1 for 1F1"):
        clock(made, Costs.even(2))


def test_what_is_left_out_or_done_twice_is_told() -> None:
    made = dict(order("1f1b", 2, 1, 2))
    made[1] = (*made[1][1:], *parse_all("1B1 1F7"))
    assert incomplete(made, 2) == [
        "stage 1, microbatch 0: B",
        "stage 1, microbatch 1: F B B",
        "stage 1, microbatch 7: there are 2 microbatches",
    ]


def parse_all(words: str):
    return [parse(word) for word in words.split()]
