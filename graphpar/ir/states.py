"""The state of a value along one mesh axis.

Every value has exactly one of these per mesh axis. `Same` and `Varying` hold equal values on all ranks; they differ in
the gradient: that of a `Same` value is equal on all ranks, that of a `Varying` one is still to be summed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Invariant:
    """I: one value, the same gradient on every rank."""

    def __str__(self) -> str:
        return "I"


@dataclass(frozen=True, slots=True)
class Replicated:
    """R: one value, used differently on each rank: gradients are still to be summed."""

    def __str__(self) -> str:
        return "R"


@dataclass(frozen=True, slots=True)
class Shard:
    """S(factor): each rank holds its block of the factor with this id."""

    factor: int
    name: str = ""

    def __str__(self) -> str:
        return f"S({self.name})"


@dataclass(frozen=True, slots=True)
class Partial:
    """P: each rank holds one summand (or, for `max`, one candidate; those carry no gradient)."""

    reduce: str = "sum"

    def __str__(self) -> str:
        return "P" if self.reduce == "sum" else f"P({self.reduce})"


State: TypeAlias = "Invariant | Replicated | Shard | Partial"

I = Invariant()  # noqa: E741  the field's own letter
R = Replicated()
P = Partial()
P_MAX = Partial("max")
