"""When each action of an order runs, without running any: time, bubble, memory in flight, and waits that never end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphpar.schedules.actions import Action, Order, Step, every, homes

Needs = Callable[[Action, int], Iterable[Action]]


@dataclass(frozen=True)
class Costs:
    """Time of one microbatch on each stage, by stage, in any unit; `link` is that of a message to another rank.

    A message keeps neither rank from computing.
    """

    forward: Sequence[float]
    inputs: Sequence[float]
    weights: Sequence[float]
    link: float = 0

    @classmethod
    def even(cls, stages: int, forward: float = 1, inputs: float = 1, weights: float = 1, link: float = 0) -> Costs:
        """The same on every stage."""
        return cls([forward] * stages, [inputs] * stages, [weights] * stages, link)

    @classmethod
    def by_work(cls, work: Sequence[float]) -> Costs:
        """A forward takes as long as a stage has `work`, and so does each half of a backward."""
        return cls(work, work, work)

    def of(self, action: Action) -> float:
        """The time of one action."""
        backward = {"I": (self.inputs,), "W": (self.weights,), "B": (self.inputs, self.weights)}
        parts = (self.forward,) if action.kind == "F" else backward[action.kind]
        return sum(part[action.stage] for part in parts)


@dataclass(frozen=True)
class Run:
    """One action at its time."""

    rank: int
    action: Action
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """All actions of a step at their times, each rank's in its order."""

    runs: tuple[Run, ...]

    def of(self, rank: int) -> tuple[Run, ...]:
        """What one rank does."""
        return tuple(run for run in self.runs if run.rank == rank)

    @property
    def cost(self) -> float:
        """The longest time from a rank's first start to its last end: what a step takes in a row of steps."""
        rows = [self.of(rank) for rank in {run.rank for run in self.runs}]
        return max(max(r.end for r in row) - min(r.start for r in row) for row in rows)

    @property
    def bubble(self) -> float:
        """The share of the cost in which the busiest rank waits."""
        busy = [sum(r.end - r.start for r in self.of(rank)) for rank in {run.rank for run in self.runs}]
        return 1 - max(busy) / self.cost

    def in_flight(self, rank: int) -> int:
        """The most forwards of all its stages that a rank holds at once: begun, and not yet run back whole."""
        held = most = 0
        for run in self.of(rank):
            held += run.action.kind == "F"
            most = max(most, held)
            held -= run.action.kind in ("B", "W")
        return most


@dataclass(frozen=True)
class Stuck(Exception):
    """No rank can go on. For each that has not ended: the action it stands at, and one that it waits for."""

    waits: Mapping[int, tuple[Action, Action]]

    def __str__(self) -> str:
        return "; ".join(f"rank {r} waits at {at} for {what}" for r, (at, what) in self.waits.items())


def needs(action: Action, stages: int) -> list[Action]:
    """What must have ended before an action: its input's forward, its own forward, the gradient of its output."""
    stage, kind, microbatch = action
    match kind:
        case "F":
            return [Action(stage - 1, "F", microbatch)] if stage else []
        case "W":
            return [Action(stage, "I", microbatch)]
        case _:
            behind = [Action(stage + 1, "I", microbatch)] if stage + 1 < stages else []
            return [Action(stage, "F", microbatch), *behind]


def clock(order: Order, costs: Costs, needs: Needs = needs) -> Timeline:
    """Each action as soon as its rank is free and what it needs is there; actions that overlap follow each other.

    Raises Stuck if some rank waits for what never comes.
    """
    return _Clock(order, costs, needs).run()


class _Clock:
    def __init__(self, order: Order, costs: Costs, needs: Needs) -> None:
        self.order = order
        self.costs = costs
        self.needs = needs
        self.homes = homes(order)
        self.stages = len(self.homes)
        self.ended: dict[Action, float] = {}
        self.runs: list[Run] = []

    def run(self) -> Timeline:
        waiting = {rank: list(steps) for rank, steps in self.order.items()}
        free = dict.fromkeys(self.order, 0.0)
        while any(waiting.values()):
            before = len(self.runs)
            for rank, steps in waiting.items():
                while steps and self.missing(steps[0]) is None:
                    free[rank] = self.step(rank, steps.pop(0), free[rank])
            if len(self.runs) == before:
                raise Stuck({r: (s[0][0], what) for r, s in waiting.items() if s and (what := self.missing(s[0]))})
        return Timeline(tuple(self.runs))

    def missing(self, step: Step) -> Action | None:
        """One that the step needs and that has not ended; what the step itself makes is there in time."""
        wanted = (a for action in step for a in self.needs(action, self.stages) if a not in step)
        return next((a for a in wanted if a not in self.ended), None)

    def step(self, rank: int, step: Step, now: float) -> float:
        arrived = [self.arrival(a, rank) for action in step for a in self.needs(action, self.stages) if a in self.ended]
        now = max([now, *arrived])
        for action in step:
            end = now + self.costs.of(action)
            self.runs.append(Run(rank, action, now, end))
            self.ended[action] = end
            if action.kind == "B":
                self.ended[action._replace(kind="I")] = end
            now = end
        return now

    def arrival(self, action: Action, rank: int) -> float:
        far = self.homes[action.stage] != rank
        return self.ended[action] + (self.costs.link if far else 0)


def incomplete(order: Order, microbatches: int) -> list[str]:
    """What an order leaves out or does twice: each stage runs each microbatch forward once, and back once."""
    counts: dict[tuple[int, int], list[str]] = {}
    for _, action in every(order):
        counts.setdefault((action.stage, action.microbatch), []).append(action.kind)
    whole = (["B", "F"], ["F", "I", "W"])
    pairs = [(stage, m) for stage in sorted(homes(order)) for m in range(microbatches)]
    unknown = sorted(set(counts) - set(pairs))
    return [
        *(f"stage {s}, microbatch {m}: {' '.join(counts.get((s, m), [])) or 'nothing'}" for s, m in pairs
          if sorted(counts.get((s, m), [])) not in whole),
        *(f"stage {s}, microbatch {m}: there are {microbatches} microbatches" for s, m in unknown),
    ]  # fmt: skip
