"""A function of position as nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import sympy

from graphpar.ir.graph import Node, Origin, Size, body_path
from graphpar.rewrite.evaluate import INDEX, Expr

Places: TypeAlias = "Mapping[tuple[Size, str], Origin]"  # by size, and by the body of a loop


class Spelling:
    """Writes an expression as nodes, and the result with the shape of the node it replaces."""

    def __init__(self, node: Node, shared: dict[object, Node], counted: Places) -> None:
        self.node = node
        self.shared = shared
        self.counted = counted

    def write(self, expression: Expr) -> Node | None:
        try:
            value = self.term(expression)
        except NotImplementedError:
            return None
        if not isinstance(value, Node):
            value = self.make("full", (), (), {"value": value}, self.node.dtype)
        if value.dtype != self.node.dtype:
            value = self.make("cast", (value,), value.shape, {"dtype": self.node.dtype}, self.node.dtype)
        return (
            value if value.shape == self.node.shape else self.make("expand", (value,), self.node.shape, {}, value.dtype)
        )

    def term(self, e: Any) -> Any:
        if e.is_Symbol and e in INDEX:
            return self.position(INDEX.index(e))
        if e in (sympy.true, sympy.false):
            return bool(e)
        if not e.has(*INDEX):
            return int(e) if e.is_Integer else e
        op = _SPELL.get(e.func)
        if op is None:
            raise NotImplementedError(str(e))
        if e.func is sympy.Piecewise:
            (a, condition), (b, _) = e.args
            return self.join("where", [self.term(x) for x in (condition, a, b)])
        if e.func is sympy.Add and e.args[0].is_negative:
            return self.join("sub", [self.term(e - e.args[0]), self.term(-e.args[0])])
        terms = [self.term(a) for a in e.args]
        if op in ("and", "or", "add", "mul"):
            value = terms[0]
            for term in terms[1:]:
                value = self.join(op, [value, term] if isinstance(value, Node) else [term, value])
            return value
        return self.join(op, terms)

    def position(self, k: int) -> Node:
        """The index along dimension k, aligned from the right so that it broadcasts."""
        size = self.node.shape[k]
        arange = self.make("arange", (), (size,), {"start": 0, "stop": size, "step": 1}, "int64")
        for behind in range(self.node.rank - 1 - k):
            shape = (*arange.shape, 1)
            arange = self.make("unsqueeze", (arange,), shape, {"dim": behind + 1}, "int64")
        return arange

    def counting(self, size: Size) -> Origin:
        """In the same body, or outside of all: what one body counts is not known to another."""
        inside = self.counted.get((size, body_path(self.node.origin.module)))
        return inside or self.counted.get((size, ""), Origin())

    def join(self, op: str, args: list[Any]) -> Node:
        shapes = [a.shape for a in args if isinstance(a, Node)]
        dtype = "bool" if op in ("and", "or", "logical_not", *_RELATIONS) else "int64"
        return self.make(op, tuple(args), _broadcast(shapes), {}, dtype)

    def make(self, op: str, args: tuple[Any, ...], shape: tuple[Size, ...], attrs: dict[str, Any], dtype: str) -> Node:
        origin = self.counting(shape[0]) if op == "arange" else self.node.origin
        key = (op, args, shape, tuple(attrs.items()), dtype, origin.module)
        if key not in self.shared:
            self.shared[key] = Node(op, args, attrs, shape, dtype, origin)
        return self.shared[key]


def _broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    rank = max(len(s) for s in shapes)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((s for s in sizes if s != 1), 1) for sizes in zip(*padded, strict=True))


_RELATIONS = ("eq", "ne", "lt", "le", "gt", "ge")
_SPELL: dict[Any, str] = {
    sympy.Add: "add",
    sympy.Mul: "mul",
    sympy.And: "and",
    sympy.Or: "or",
    sympy.Not: "logical_not",
    sympy.Eq: "eq",
    sympy.Ne: "ne",
    sympy.StrictLessThan: "lt",
    sympy.LessThan: "le",
    sympy.StrictGreaterThan: "gt",
    sympy.GreaterThan: "ge",
    sympy.Piecewise: "where",
}
