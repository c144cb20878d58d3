"""From one state to another along one mesh axis.

Each row is a pair: what happens forward, and its transpose backward. The source of the pairs is the adjoint rule that
the cotangent of an R value is a P, that of a P an R, and I and S keep their own.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphpar.ir.states import Invariant, Partial, Replicated, Shard, State


@dataclass(frozen=True, slots=True)
class Transition:
    """The op that makes it, the collective it performs forward and backward (None: none), and its place in an order.

    Where several axes of one value change, cheap local cuts come first, so that less is sent, and copies last.
    """

    op: str
    forward: str | None
    backward: str | None
    order: int


GRAD_ALL_REDUCE = Transition("grad_all_reduce", None, "all_reduce", 6)
ALL_REDUCE = Transition("all_reduce", "all_reduce", None, 5)
ALL_REDUCE_MAX = Transition("all_reduce_max", "all_reduce", None, 5)
ALL_GATHER = Transition("all_gather", "all_gather", "reduce_scatter", 4)
ALL_GATHER_SAME = Transition("all_gather_same", "all_gather", None, 4)
REDUCE_SCATTER = Transition("reduce_scatter", "reduce_scatter", "all_gather", 2)
SLICE = Transition("slice_", None, "all_gather", 1)
SLICE_PARTIAL = Transition("slice_partial", None, None, 1)
ALL_TO_ALL = Transition("all_to_all", "all_to_all", "all_to_all", 3)


def transitions(have: State, want: State, *, gradient: bool) -> tuple[Transition, ...] | None:
    """The steps from `have` to `want`; empty if none is needed, None if there is no exact way.

    Without a gradient, I and R are the same.
    """
    if have == want:
        return ()
    match have, want:
        case (Invariant(), Replicated()) | (Replicated(), Invariant()) if not gradient:
            return ()
        case Invariant(), Replicated():
            return (GRAD_ALL_REDUCE,)
        case (Invariant() | Replicated()), Shard() if not gradient:
            return (Transition("slice_", None, None, 1),)
        case Invariant(), Shard():
            return (SLICE,)
        case Replicated(), Shard():
            return (SLICE_PARTIAL,)
        case Shard(), (Replicated() | Invariant()) if not gradient:
            return (Transition("all_gather", "all_gather", None, 4),)
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
