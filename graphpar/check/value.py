"""A tensor of the program: how its dimensions lie on the mesh, and its state along each mesh axis.

Along an axis a tensor is one of four things: I (the same everywhere, and so is its gradient), R (the same everywhere,
its gradient a summand), S (cut along one of its dimensions), P (a summand). Without a gradient, I and R are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise, permutations
from typing import Literal

from graphpar.check.dims import (
    ONE,
    Dim,
    Wrong,
    agree,
    cut_by,
    cut_by_any,
    length,
    product,
    single,
    spell,
    spell_all,
)

State = Literal["I", "R", "S", "P"]
How = Literal["add", "multiply", "other"]  # whether a sum that is still to be taken may be an operand
READINGS = 24  # of a tensor, or of the operands of a rule, at most


@dataclass(frozen=True)
class Value:
    """A tensor. `partial` are the axes along which it is P, `replicated` those along which it is R."""

    dims: tuple[Dim, ...]
    partial: frozenset[str] = frozenset()
    replicated: frozenset[str] = frozenset()
    grad: bool = False

    @property
    def cut(self) -> frozenset[str]:
        """The axes along which it is S."""
        return cut_by_any(self.dims)

    def state(self, axis: str) -> State:
        """What it is along an axis."""
        if axis in self.partial:
            return "P"
        if axis in self.cut:
            return "S"
        return "R" if axis in self.replicated else "I"

    def at(self, dim: int) -> int:
        """A dimension's number counted from the front. Raises Wrong if there is no such dimension."""
        if not -len(self.dims) <= dim < len(self.dims):
            raise Wrong(f"{self} has no dimension {dim}")
        return dim % len(self.dims)

    def shaped(self, dims: Iterable[Dim]) -> Value:
        """The same elements in other dimensions."""
        return replace(self, dims=tuple(dims))

    def __str__(self) -> str:
        """As the comments of a program write it."""
        partial = f"   partial({' '.join(sorted(self.partial))})" if self.partial else ""
        return f"`{spell_all(self.dims)}{partial}`"


def meet(values: Sequence[Value], dims: Sequence[Dim], how: How, summed: frozenset[str] = frozenset()) -> Value:
    """What an operation makes of operands whose dimensions fit: its state along every axis.

    `summed` are axes that cut a dimension which the operation sums over: along them the result is a summand.
    Raises Wrong where a gradient or a sum would be wrong.
    """
    partial: set[str] = set(summed)
    replicated: set[str] = set()
    for axis in frozenset().union(*(v.partial | v.replicated | v.cut for v in values)):
        states = {_state(v, axis) for v in values}
        if "P" in states:
            _check_sum(axis, [_state(v, axis) for v in values], how)
            partial.add(axis)
        elif "I" in states and states & {"S", "R"}:
            raise Wrong(_no_gradient(axis, values))
        elif states <= {"R", "N"} and "R" in states:
            replicated.add(axis)
    return Value(tuple(dims), frozenset(partial), frozenset(replicated), any(v.grad for v in values))


def _state(value: Value, axis: str) -> str:
    state = value.state(axis)
    return "N" if state in "IR" and not value.grad else state


def _check_sum(axis: str, states: Sequence[str], how: How) -> None:
    if how == "other":
        raise Wrong(f"the sum over {axis} must be taken before this: it is no linear function of it")
    if how == "add" and set(states) != {"P"}:
        raise Wrong(f"one operand is still to be summed over {axis}, the other is not: it would be added once per rank")
    if how == "multiply" and (states.count("P") > 1 or set(states) & {"I", "S"}):
        raise Wrong(f"a product with something that is still to be summed over {axis} is not the product of the sum")


def _no_gradient(axis: str, values: Sequence[Value]) -> str:
    same = next(v for v in values if _state(v, axis) == "I")
    other = next(v for v in values if _state(v, axis) in ("S", "R"))
    how = "is another part" if _state(other, axis) == "S" else "gives a summand of the gradient"
    return (
        f"{other} {how} on each rank of {axis}, but the gradient of {same} is taken for the same on all of them: "
        f"it is never summed over {axis}"
    )


def broadcast(values: Sequence[Value]) -> tuple[Dim, ...]:
    """The dimensions of an elementwise result. Raises Wrong if the operands lie differently."""
    rank = max(len(v.dims) for v in values)
    found = tuple(together([v.dims[i] for v in values if len(v.dims) >= -i], values) for i in range(-rank, 0))
    check_apart(found)
    return found


def check_apart(dims: Iterable[Dim]) -> None:
    """Raise Wrong if an axis cuts two dimensions: a rank would have one block of its diagonal."""
    seen: frozenset[str] = frozenset()
    for dim in dims:
        if both := seen & cut_by(dim):
            raise Wrong(f"two dimensions here are cut over {' '.join(sorted(both))}: only the diagonal would be made")
        seen |= cut_by(dim)


def readings(value: Value) -> Iterator[Value]:
    """The same tensor with the cuts of its dimensions of one element in other ones of them.

    Whether `1@tp 1` or `1 1@tp` is read where a head of each rank is split into groups of one, nothing on a rank says;
    nor whether `1@tp 2` or `1 (1@tp 2)` is, where a dimension of one element stands before one that is cut.
    """
    for i, (one, behind) in enumerate(pairwise(value.dims)):
        if length(one) == 1 and cut_by(one) and len(one) == len(behind) == 1:
            joined = product([one, behind])
            yield value.shaped((*value.dims[:i], ONE, joined, *value.dims[i + 2 :]))
    units = [i for i, dim in enumerate(value.dims) if length(dim) == 1]
    if len(units) > 1 and cut_by_any(value.dims[i] for i in units):
        held = [value.dims[i] for i in units]
        for order in islice(dict.fromkeys(permutations(held)), 1, READINGS):
            dims = dict(zip(units, order, strict=True))
            yield value.shaped(dims.get(i, dim) for i, dim in enumerate(value.dims))


def together(dims: Sequence[Dim], values: Sequence[Value]) -> Dim:
    """The dimension that dims of operands are; one of one element goes with any. Raises Wrong if they differ."""
    found = dims[0]
    for dim in dims[1:]:
        both = dim if single(found) else found if single(dim) else agree(found, dim)
        if both is None:
            raise Wrong(f"{' and '.join(map(str, values))} lie differently: {spell(found)} meets {spell(dim)}")
        found = both
    return found


def elementwise(values: Sequence[Value], how: How) -> Value:
    """An elementwise operation of tensors."""
    return meet(values, broadcast(values), how)
