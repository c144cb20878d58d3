"""Ops that treat every row alike, on rows in another order and of another form.

A row is what the leading dimensions of a value count: the tokens times their choices, `[tokens, topk, ..]` or flat. An
op that works within rows gives the same for rows in any order, as one leading dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import sympy

from graphpar.ir.graph import Node, Size
from graphpar.ops.rules import ELEMENTWISE


@dataclass(frozen=True, slots=True)
class Rows:
    """A value with `lead` leading dimensions that count rows, and the same as `node`, of one leading dimension."""

    lead: int
    node: Node


Values: TypeAlias = "Mapping[Node, Rows]"


def follow(node: Node, values: Values, count: Size) -> Rows | None:
    """The op on rows as `values` have them; None if it reads none of them or mixes rows. `count` is their number."""
    own = [values[a] for a in node.operands if a in values]
    rule = _RULES.get(node.op)
    return rule(node, own, values, count) if own and rule else None


def rows_of(shape: Sequence[Size], count: Size) -> int | None:
    """How many leading dimensions count all rows."""
    return next((lead for lead in range(1, len(shape) + 1) if same(prod(shape[:lead]), count)), None)


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal for every batch and seq."""
    return a == b or sympy.expand(sympy.sympify(a) - sympy.sympify(b)) == 0


def with_shape(node: Node, shape: tuple[Size, ...]) -> Node:
    """A value in another shape."""
    if node.shape == shape:
        return node
    inner = node
    while inner.op in ("reshape", "unsqueeze") and inner.shape != shape:
        (inner,) = inner.operands
    return inner if inner.shape == shape else Node("reshape", (inner,), {}, shape, node.dtype, node.origin)


def _made(node: Node, lead: int, args: Sequence[Any], count: Size, attrs: Mapping[str, Any] | None = None) -> Rows:
    shape = (count, *node.shape[lead:])
    return Rows(lead, replace(node, args=tuple(args), shape=shape, attrs=node.attrs if attrs is None else attrs))


def _lead(own: Sequence[Rows]) -> int | None:
    leads = {rows.lead for rows in own}
    return leads.pop() if len(leads) == 1 else None


def _pointwise(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    lead = _lead(own)
    if lead is None or any(a.rank != node.rank for a in node.operands if a in values):
        return None
    args: list[Any] = []
    for arg in node.args:
        if not isinstance(arg, Node):
            args.append(arg)
        elif arg in values:
            args.append(values[arg].node)
        elif (plain := _without_rows(arg, node.rank - lead)) is not None:
            args.append(plain)
        else:
            return None
    return _made(node, lead, args, count)


def _without_rows(arg: Node, rank: int) -> Node | None:
    """An operand that is one for all rows, of at most so many dimensions."""
    extra = max(arg.rank - rank, 0)
    return with_shape(arg, arg.shape[extra:]) if all(s == 1 for s in arg.shape[:extra]) else None


def _along(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    """An op along one dimension behind the rows, or along a new one."""
    lead = _lead(own)
    dim = node.attrs["dim"]
    if lead is None or len(own) != len(node.operands) or dim < lead:
        return None
    args = [values[a].node if isinstance(a, Node) else a for a in node.args]
    return _made(node, lead, args, count, {**node.attrs, "dim": dim - lead + 1})


def _reduce(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    lead, dims = own[0].lead, node.attrs["dims"]
    if any(d < lead for d in dims):
        return None
    return _made(node, lead, [own[0].node], count, {**node.attrs, "dims": tuple(d - lead + 1 for d in dims)})


def _first(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    """Only the first operand has rows: a linear, or a norm over what is behind them."""
    x = node.args[0]
    if not isinstance(x, Node) or x not in values or len(own) != 1:
        return None
    if node.attrs.get("dims", 1) > node.rank - own[0].lead:
        return None
    return _made(node, own[0].lead, [own[0].node, *node.args[1:]], count)


def _reshape(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    lead = rows_of(node.shape, count)
    return None if lead is None else Rows(lead, with_shape(own[0].node, (count, *node.shape[lead:])))


def _permute(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    lead, order = own[0].lead, node.attrs["order"]
    if order[:lead] != tuple(range(lead)):
        return None
    return _made(node, lead, [own[0].node], count, {"order": (0, *(d - lead + 1 for d in order[lead:]))})


def _expand(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    (x,) = node.operands
    return _made(node, own[0].lead, [own[0].node], count) if x.rank == node.rank else None


def _matmul(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    """Rows are batch dimensions of each operand that has them."""
    lead = _lead(own)
    if lead is None or lead > node.rank - 2 or any(a.rank != node.rank for a in node.operands if a in values):
        return None
    if any(a.rank > 2 for a in node.operands if a not in values):
        return None
    return _made(node, lead, [values[a].node if a in values else a for a in node.operands], count)


def _einsum(node: Node, own: Sequence[Rows], values: Values, count: Size) -> Rows | None:
    """Rows are the same letters, first in each operand that has them and in the result."""
    lead = _lead(own)
    left, _, right = node.attrs["equation"].partition("->")
    if lead is None:
        return None
    rows, terms = right[:lead], left.split(",")
    written: list[str] = []
    for term, operand in zip(terms, node.operands, strict=True):
        mine = term[:lead] == rows if operand in values else not set(term) & set(rows)
        if not mine:
            return None
        written.append(rows[0] + term[lead:] if operand in values else term)
    equation = f"{','.join(written)}->{rows[0]}{right[lead:]}"
    args = [values[a].node if a in values else a for a in node.operands]
    return _made(node, lead, args, count, {**node.attrs, "equation": equation})


_Rule: TypeAlias = Callable[[Node, Sequence[Rows], Values, Size], "Rows | None"]

_NEVER = {"dropout", "loop_enter", "loop_leave"}  # a mask is drawn by position; a loop carries values out of reach
_RULES: dict[str, _Rule] = {
    **{op: _pointwise for op in ELEMENTWISE if op not in _NEVER},
    **dict.fromkeys(
        ["piece", "segment", "slice", "select", "softmax", "log_softmax", "cumsum", "unsqueeze", "cat", "stack"], _along
    ),
    **dict.fromkeys(["sum", "mean", "var", "amax", "amin"], _reduce),
    **dict.fromkeys(["linear", "layer_norm", "rms_norm"], _first),
    "matmul": _matmul,
    "einsum": _einsum,
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
}
