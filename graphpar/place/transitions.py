"""From one state to another along one mesh axis.

Each row is a pair: what happens forward, and its transpose backward. The source of the pairs is the adjoint rule that
the cotangent of an R value is a P, that of a P an R, and I and S keep their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphpar.ir.states import Invariant, Partial, Replicated, Shard, State


@dataclass(frozen=True, slots=True)
class Transition:
    """The op that makes it, and the collective it performs forward and backward (None: none)."""

    op: str
    forward: str | None
    backward: str | None


GRAD_ALL_REDUCE = Transition("grad_all_reduce", None, "all_reduce")
ALL_REDUCE = Transition("all_reduce", "all_reduce", None)
ALL_REDUCE_MAX = Transition("all_reduce_max", "all_reduce", None)
ALL_GATHER = Transition("all_gather", "all_gather", "reduce_scatter")
ALL_GATHER_SAME = Transition("all_gather_same", "all_gather", None)
REDUCE_SCATTER = Transition("reduce_scatter", "reduce_scatter", "all_gather")
SLICE = Transition("slice_", None, "all_gather")
SLICE_PARTIAL = Transition("slice_partial", None, None)
PAD_PARTIAL = Transition("pad_partial", None, None)
FIRST_ONLY = Transition("first_only", None, None)
ALL_TO_ALL = Transition("all_to_all", "all_to_all", "all_to_all")


def transitions(have: State, want: State, *, gradient: bool) -> tuple[Transition, ...] | None:
    """The steps from `have` to `want`; empty if none is needed, None if there is no exact way.

    Without a gradient, I and R are the same, and nothing runs backward.
    """
    found = _steps(have, want, gradient=gradient)
    return found if found is None or gradient else tuple(replace(step, backward=None) for step in found)


def _steps(have: State, want: State, *, gradient: bool) -> tuple[Transition, ...] | None:
    if have == want:
        return ()
    match have, want:
        case (Invariant(), Replicated()) | (Replicated(), Invariant()) if not gradient:
            return ()
        case Invariant(), Replicated():
            return (GRAD_ALL_REDUCE,)
        case ((Invariant() | Replicated()), Shard()) if not gradient:
            return (SLICE,)
        case Invariant(), Shard():
            return (SLICE,)
        case Replicated(), Shard():
            return (SLICE_PARTIAL,)
        case Shard(), (Replicated() | Invariant()) if not gradient:
            return (ALL_GATHER,)
        case Shard(), Replicated():
            return (ALL_GATHER,)
        case Shard(), Invariant():
            return (ALL_GATHER_SAME,)
        case Shard(), Shard():
            return (ALL_TO_ALL,)
        case Partial("max"), Invariant():
            return (ALL_REDUCE_MAX,)
        case Partial("sum"), Invariant():
            return (ALL_REDUCE,)
        case Partial("sum"), Replicated():
            return (ALL_REDUCE, GRAD_ALL_REDUCE) if gradient else (ALL_REDUCE,)
        case Partial("sum"), Shard():
            return (REDUCE_SCATTER,)
        case _:
            return None


def as_summand(have: State, want: State) -> tuple[Transition, ...] | None:
    """What is whole, or cut, as a summand: a bias beside a pending sum, and each rank's rows by expert."""
    match have, want:
        case Shard(), Partial("sum"):
            return (PAD_PARTIAL,)
        case Invariant(), Partial("sum"):
            return (FIRST_ONLY,)
        case _:
            return None
