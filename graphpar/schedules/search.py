"""An order for given times and memory: the automatic schedule of Zero Bubble (Qi et al. 2023, arXiv:2401.10241, 3.1).

The pipeline is played through: a stage that is free chooses what to start by a few rules. Where a rule can go either
way all ways are tried, and the order that takes the least time is kept. That is no proof: a better order may exist, one
made by hand may be among them, and now and then more memory leads to a longer step.

Of the choices, `late` is the paper's; that `largest` may be left alone, and `patient`, are not. The paper also tries
whether a stage runs ahead of the next by more than one forward. That is left out: no published rate needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import product
from math import inf
from typing import NamedTuple

from graphpar.schedules.actions import Action, Kind, Order
from graphpar.schedules.clock import Costs, clock


class Rules(NamedTuple):
    """What the search tries both ways."""

    late: bool  # warming up, one more forward although the first gradient then has to wait
    patient: bool  # out of turn only if weights cannot fill the gap
    largest: bool  # weights also into a gap that is too short, if waiting would make the stage the last to end


def zero_bubble(microbatches: int, costs: Costs, limit: float, share: float = 1) -> Order:
    """The best order found, one stage on each rank, each backward in its halves.

    A stage holds at most `limit` at once, in activations of one microbatch on a stage (M_B of the paper): 1f1b needs as
    many as there are stages. Each is held from its forward on; once the gradient of the input is known, `share` of it
    (M_W / M_B) stays until those of the weights are.
    """
    if limit < 1:
        raise ValueError(f"a limit of {limit} activations leaves no room for one microbatch")
    memory = Memory(limit, share)
    ticks = _in_ticks(costs)
    tries = (_Play(microbatches, ticks, memory, Rules(*ways)).order() for ways in product((False, True), repeat=3))
    return min(tries, key=lambda order: clock(order, costs).cost)


def _in_ticks(costs: Costs) -> Costs:
    """In whole numbers: sums do not depend on their order then, and weights fit a gap that is just as long."""
    parts = (costs.forward, costs.inputs, costs.weights, [costs.link])
    tick = max(map(max, parts)) / 10**9 or 1
    forward, inputs, weights, [link] = ([round(time / tick) for time in part] for part in parts)
    return Costs(forward, inputs, weights, link)


class Memory(NamedTuple):
    """How many activations a stage may hold, and how much of one is left between the halves of its backward."""

    limit: float
    share: float

    def room(self, forwards: int, inputs: int, weights: int) -> bool:
        """Whether a stage that has done so many actions of each kind can run one more forward."""
        return forwards - inputs + self.share * (inputs - weights) + 1 <= self.limit


class View(NamedTuple):
    """A free stage when it chooses. Times are from now on; infinite if nothing is known to come."""

    forward: float  # until the next microbatch is here
    gradient: float  # until the next gradient is here
    room: bool  # in memory, for one more forward
    weights: bool  # there are some to do
    started: bool  # the first gradient has been here
    turn: Kind
    margin: float  # how long the stage can wait until it takes longer than any other
    costs: tuple[float, float]  # of a forward, and of the weights' half of a backward


def choose(view: View, rules: Rules) -> Kind | None:
    """What a stage starts now, or None if it waits for what comes next."""
    return _in_turn(view, rules) if view.started else _warm_up(view, rules)


def _warm_up(view: View, rules: Rules) -> Kind | None:
    """Forwards, as many as memory holds and the time until the first gradient."""
    in_time = view.gradient >= view.costs[0] or (rules.late and view.gradient > 0)
    if view.forward <= 0 and view.room and in_time:
        return "F"
    return "I" if view.gradient <= 0 else None


def _in_turn(view: View, rules: Rules) -> Kind | None:
    """A forward and a gradient of the input in turn, and those of weights where there is a gap or no room."""
    turn = view.turn
    if turn == "F" and not view.room:
        if view.weights:
            return "W"
        turn = "I"
    waits: dict[Kind, float] = {"F": view.forward if view.room else inf, "I": view.gradient}
    other: Kind = "I" if turn == "F" else "F"
    if waits[turn] <= 0:
        return turn
    if waits[other] <= 0 and not rules.patient:
        return other
    gap = waits[turn] if rules.patient else min(waits.values())
    if view.weights and (gap >= view.costs[1] or (rules.largest and gap > view.margin)):
        return "W"
    return other if waits[other] <= 0 else None


@dataclass
class _Stage:
    """What a stage has done so far, and when what it needs is there."""

    done: list[Action] = field(default_factory=list)
    counts: dict[Kind, int] = field(default_factory=lambda: {"F": 0, "I": 0, "W": 0})
    arrivals: dict[Kind, list[float]] = field(default_factory=lambda: {"F": [], "I": []})  # in order of microbatches
    free: float = 0  # from when on
    waited: float = 0  # since its first start
    turn: Kind = "F"

    def wait(self, kind: Kind, now: float) -> float:
        """Until the next of a kind can start."""
        known = self.arrivals[kind]
        return known[self.counts[kind]] - now if self.counts[kind] < len(known) else inf


class _Play:
    """One way through, by one set of rules."""

    def __init__(self, microbatches: int, costs: Costs, memory: Memory, rules: Rules) -> None:
        self.microbatches = microbatches
        self.costs = costs
        self.memory = memory
        self.rules = rules
        self.stages: Sequence[_Stage] = [_Stage() for _ in costs.forward]
        self.stages[0].arrivals["F"] = [0.0] * microbatches
        self.events = [(0.0, 0)]  # times at which a stage is free again or something arrives at it

    def order(self) -> Order:
        while self.events:
            now, stage = heappop(self.events)
            if self.stages[stage].free > now:
                continue
            if kind := choose(self.view(stage, now), self.rules):
                self.start(stage, kind, now)
        return {rank: tuple((action,) for action in stage.done) for rank, stage in enumerate(self.stages)}

    def view(self, index: int, now: float) -> View:
        stage = self.stages[index]
        count = stage.counts
        return View(
            forward=stage.wait("F", now),
            gradient=stage.wait("I", now),
            room=self.memory.room(count["F"], count["I"], count["W"]),
            weights=count["I"] > count["W"],
            started=count["I"] > 0,
            turn=stage.turn if count["F"] < self.microbatches else "I",
            margin=max(map(self.span, range(len(self.stages)))) - self.span(index),
            costs=(self.costs.forward[index], self.costs.weights[index]),
        )

    def span(self, index: int) -> float:
        """The time from a stage's first start to its last end, if it waits no more."""
        one = self.costs.forward[index] + self.costs.inputs[index] + self.costs.weights[index]
        return self.microbatches * one + self.stages[index].waited

    def start(self, index: int, kind: Kind, now: float) -> None:
        stage = self.stages[index]
        action = Action(index, kind, stage.counts[kind])
        stage.waited += now - stage.free if stage.done else 0
        stage.free = now + self.costs.of(action)
        stage.done.append(action)
        stage.counts[kind] += 1
        heappush(self.events, (stage.free, index))
        if kind != "W":
            stage.turn = "I" if kind == "F" else "F"
            self.send(index, kind, stage.free)

    def send(self, index: int, kind: Kind, end: float) -> None:
        """To the stage behind or before; what the last stage makes of a forward it runs back itself."""
        target = index + (1 if kind == "F" else -1)
        if target == len(self.stages):
            self.stages[index].arrivals["I"].append(end)
        elif target >= 0:
            self.stages[target].arrivals[kind].append(end + self.costs.link)
            heappush(self.events, (end + self.costs.link, target))
