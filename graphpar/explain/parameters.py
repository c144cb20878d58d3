"""A parameter or buffer: what a rank has of it and why, over which axes its gradient is summed and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpar.explain.collectives import Collective
from graphpar.explain.laws import WITHOUT
from graphpar.explain.memory import width
from graphpar.explain.quotes import Quotes
from graphpar.explain.reasons import Step, Without, named, step

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter or buffer, or those of a loop's members together: `name` has a star for their indices.

    `cut` says why a rank has a part of it, `summed` why its gradient is summed. `collectives` are the numbers of those
    that an op of its module needs or makes, and of the sums that its gradient is in.
    """

    name: str
    kind: str
    members: tuple[str, ...]
    aliases: tuple[str, ...]
    axes: str
    shape: tuple[int, ...]
    local_shape: tuple[int, ...]
    dtype: str
    trainable: bool
    stages: tuple[int, ...]
    sharded: tuple[str, ...]
    grad_sum: tuple[str, ...]
    cut: tuple[Step, ...]
    summed: tuple[Step, ...]
    without: tuple[Without, ...]
    collectives: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """On one rank, of one member."""
        return prod(self.local_shape) * width(self.dtype)

    @property
    def whole(self) -> int:
        """Bytes of one member on one device."""
        return prod(self.shape) * width(self.dtype)


def parameters(plan: Plan, every: Sequence[Collective], quotes: Quotes) -> tuple[Parameter, ...]:
    """All parameters and buffers, in the source's order."""
    families: dict[tuple[str, str], list[str]] = {}
    for kind in ("parameters", "buffers"):
        for name, entry in plan[kind].items():
            families.setdefault((kind, entry["family"]), []).append(name)
    return tuple(_parameter(kind, family, names, plan, every, quotes) for (kind, family), names in families.items())


def _parameter(
    kind: str, family: str, names: Sequence[str], plan: Plan, every: Sequence[Collective], quotes: Quotes
) -> Parameter:
    entries = [plan[kind][name] for name in names]
    first, causes = entries[0], plan["causes"][family]
    own = [c for c in causes if c["role"] == "own"]
    uses = [c for c in causes if c["role"] == "use"]
    return Parameter(
        name=family,
        kind=kind.removesuffix("s"),
        members=tuple(names),
        aliases=tuple(alias for entry in entries for alias in entry.get("aliases", ())),
        axes=first["axes"],
        shape=tuple(first["shape"]),
        local_shape=tuple(first["local_shape"]),
        dtype=first["dtype"],
        trainable=first.get("trainable", False),
        stages=tuple(sorted({s for entry in entries for s in entry.get("stages", ())})),
        sharded=tuple(first.get("sharded", ())),
        grad_sum=tuple(first.get("grad_sum", ())),
        cut=tuple(_cut(cause, quotes) for cause in own),
        summed=tuple(dict.fromkeys(step(cause, "gradients", uses, quotes) for cause in uses)),
        without=tuple(dict.fromkeys(_without([*own, *uses], quotes))),
        collectives=tuple(_around(family, every)),
    )


def _cut(cause: Mapping[str, Any], quotes: Quotes) -> Step:
    text = f"each rank of {cause['axis']} has its part of {cause['dim']}"
    return Step(text, "", None, quotes.rule(cause["rule"]))


def _without(causes: Sequence[Mapping[str, Any]], quotes: Quotes) -> Iterator[Without]:
    for cause in causes:
        rule = quotes.rule(cause["rule"])
        if rule and cause["role"] == "own":
            yield Without(str(rule), f"{cause['dim']} is whole on each rank of {cause['axis']}")
        elif rule:
            then = WITHOUT["gradients", "use"].format(reader=named(cause), dim=cause["dim"], axis=cause["axis"])
            yield Without(str(rule), then)


def _around(family: str, every: Sequence[Collective]) -> Iterator[int]:
    """The collectives that have to do with a parameter."""
    module = family.rpartition(".")[0]
    for one in every:
        near = {one.module, *one.readers, *(step.module for step in one.chain.steps)}
        if family in one.parameters or family in near or (module and module in near):
            yield one.number
