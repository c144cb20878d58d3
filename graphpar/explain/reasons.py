"""The chain of reasons of a collective or a parameter: ops that are cut, the rules that cut them, what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphpar.explain.laws import INSIDE, LAWS, OTHER, WITHOUT
from graphpar.explain.quotes import Quotes, Rule

Cause = Mapping[str, Any]
_STANDS_FOR = {
    "parameter": "the parameter",
    "buffer": "the buffer",
    "input": "the input",
    "loop_enter": "the loop in",
    "loop_leave": "the loop in",
}


@dataclass(frozen=True)
class Step:
    """One reason: what is so, the place in the source, and the rule of the spec that makes it so."""

    text: str
    module: str
    where: str | None
    rule: Rule | None


@dataclass(frozen=True)
class Without:
    """What it would take to be rid of it, and what is left then."""

    what: str
    then: str


@dataclass(frozen=True)
class Chain:
    """Reasons in order, what follows for the value and for its gradient, and what it would take to remove it."""

    steps: tuple[Step, ...]
    forward: str
    backward: str
    without: tuple[Without, ...]

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in it, each once."""
        return tuple(dict.fromkeys(step.rule for step in self.steps if step.rule))

    @property
    def complete(self) -> bool:
        """Whether it leads to a line of the spec and to a line of the source, and says how to be rid of it."""
        return bool(self.rules and self.without) and any(step.where for step in self.steps)


def chain(op: str, axis: str, causes: Sequence[Cause], quotes: Quotes, *, back: bool) -> Chain:
    """The chain of a collective that does `op`; `back` says whether a gradient flows through it at all."""
    law = LAWS.get(op, OTHER)
    steps = tuple(dict.fromkeys(step(cause, op, causes, quotes) for cause in causes))
    without = dict.fromkeys((*_without(op, causes, quotes), *alone(axis)))
    return Chain(steps, law.forward, law.backward if back else "no gradient flows here", tuple(without))


def step(cause: Cause, op: str, causes: Sequence[Cause], quotes: Quotes) -> Step:
    """One cause in words."""
    rule = quotes.rule(cause["rule"])
    inside = f", in the region `{rule.region}`" if rule and rule.region else ""
    return Step(f"{_says(cause, op, causes)}{inside}", cause["module"], cause["where"], rule)


def named(cause: Cause) -> str:
    """`linear in layers.*.mlp.up`, or what an op that computes nothing stands for."""
    module = cause["module"] or "the model itself"
    return f"{_STANDS_FOR.get(cause['op'], cause['op'] + ' in')} {module}"


def _says(cause: Cause, op: str, causes: Sequence[Cause]) -> str:
    axis, dim = cause["axis"], cause["dim"]
    match cause["role"], cause["how"]:
        case "made", "summed":
            return f"{named(cause)} adds up its part of {dim} on each rank of {axis}: what it makes is a summand"
        case "made", "cut":
            made = named(cause) if cause["op"] in _STANDS_FOR else f"what {named(cause)} makes"
            return f"{made} is cut by {dim}: each rank of {axis} has its part"
        case _, "whole":
            return f"no rule cuts {named(cause)} along {axis}: it needs the value whole"
        case "needed", _ if op == "grad_all_reduce":
            return f"{named(cause)} works on its part of {dim}, from a value that each rank of {axis} has whole"
        case "needed", _ if op == "all_gather":
            return f"{named(cause)} works on its part of {dim} on each rank of {axis}, and needs all of {_had(causes)}"
        case "use", _:
            return f"{named(cause)} reads it for its part of {dim}: each rank of {axis} has a summand of the gradient"
        case _:
            return f"{named(cause)} works on its part of {dim} on each rank of {axis}"


def _had(causes: Sequence[Cause]) -> str:
    return next((c["dim"] for c in causes if c["role"] == "made" and c["dim"]), "it")


def _without(op: str, causes: Sequence[Cause], quotes: Quotes) -> Iterable[Without]:
    reader = next((named(c) for c in causes if c["role"] in ("needed", "use")), "")
    for cause in causes:
        rule = quotes.rule(cause["rule"])
        then = INSIDE if cause["role"] == "own" else WITHOUT.get((op, cause["role"]))
        if rule and then:
            words = {"dim": cause["dim"], "axis": cause["axis"], "had": _had(causes)}
            yield Without(str(rule), then.format(reader=named(cause) if cause["role"] == "use" else reader, **words))


def alone(axis: str) -> Iterable[Without]:
    """What is always so: ranks that are alone along an axis exchange nothing."""
    axes = axis.split()
    ranks = ", ".join(f"{name}: 1" for name in axes)
    yield Without(f"more than one rank along {' and '.join(axes)} (`mesh: {{{ranks}}}`)", "there is nobody to talk to")
