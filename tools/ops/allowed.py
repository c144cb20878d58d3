"""How one rank may hold a tensor, and in which of these ways the rules run an op without a collective."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpar.ir.axes import Axis
from graphpar.ir.graph import Node
from graphpar.ir.states import Partial, Shard
from tools.ops.case import Case
from tools.ops.program import Program, Whole, whole
from tools.ops.run import index
from tools.ops.shardings import flows, single


@dataclass(frozen=True)
class Held:
    """What two ranks hold of a tensor: all of it, some indices of one dimension each, or what is to be combined."""

    how: str  # whole, cut, sum, max, min
    dim: int = 0
    first: tuple[int, ...] = ()  # the indices of rank 0
    factor: str = ""  # what is cut, if not the whole dimension into halves

    def __str__(self) -> str:
        cut = f"{self.dim}{self.factor}"
        return {"whole": "-", "cut": cut, "sum": "P"}.get(self.how, f"P({self.how})")

    def part(self, value: Tensor, rank: int) -> Tensor:
        """The part of a rank, of a tensor that is cut."""
        size = value.shape[self.dim]
        own = self.first if rank == 0 else [i for i in range(size) if i not in self.first]
        return value.index_select(self.dim, torch.tensor(own))


Way = tuple[tuple[Held, ...], Held]  # how the operands are held, and then the result

WHOLE, SUM = Held("whole"), Held("sum")


def halves(shape: tuple[int, ...], axes: tuple[Axis, ...]) -> list[Held]:
    """Every way to cut one dimension in two: into halves, and along each of its factors."""
    found: dict[tuple[int, tuple[int, ...]], Held] = {}
    for dim, size in enumerate(shape):
        if size % 2 == 0:
            found[dim, tuple(range(size // 2))] = Held("cut", dim, tuple(range(size // 2)))
    for dim, axis in enumerate(axes):
        for factor in axis.factors:
            if int(factor.size) % 2 == 0:
                found.setdefault((dim, at := _first(axis, factor.id)), Held("cut", dim, at, f"/{factor.size}"))
    return list(found.values())


def _first(axis: Axis, factor: int) -> tuple[int, ...]:
    return tuple(index(axis, {factor: ["x"]}, {"x": 2}, {"x": 0}).tolist())


def rules(case: Case) -> set[Way]:
    """The ways in which the rules run an op."""
    return {way for program in (*single(whole(case)), *flows(case)) if (way := _way(program)) is not None}


def _way(program: Program) -> Way | None:
    state = (program.op.state or {})["x"]
    if program.passes("x"):
        pending = [SUM if p in program.sharding.pending else WHOLE for p in leaves(program.whole)]
        return tuple(pending), SUM
    if not program.claims:
        return None
    factor = program.claims["x"]
    axes = program.op.views
    operands = [_held(view, factor) for arg, view in zip(program.op.args, axes, strict=False) if isinstance(arg, Node)]
    result = (
        SUM if isinstance(state, Partial) else _held(program.op.named, factor) if isinstance(state, Shard) else WHOLE
    )
    return tuple(operands[: len(program.whole.case.operands)]), result


def leaves(whole: Whole) -> Iterator[str]:
    """The operands by name, as the op reads them."""
    names = [o.name for o in whole.case.operands]
    yield from (a for a in whole.case.args if a in names)


def _held(axes: tuple[Axis, ...] | None, factor: int) -> Held:
    for dim, axis in enumerate(axes or ()):
        if any(f.id == factor for f in axis.factors):
            at = _first(axis, factor)
            size = next(f.size for f in axis.factors if f.id == factor)
            return Held("cut", dim, at, "" if at == tuple(range(len(at))) else f"/{size}")
    return WHOLE
