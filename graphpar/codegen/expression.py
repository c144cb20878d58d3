"""Expressions as text, and what they may refer to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import sympy

from graphpar.codegen.local import Cuts
from graphpar.ir.graph import Node, Size

ATOM, UNARY, TIMES, PLUS, AND, OR, COMPARE = 100, 90, 80, 70, 60, 50, 40


@dataclass(frozen=True)
class Text:
    """An expression and how tightly its outermost operator binds."""

    text: str
    binds: int = ATOM

    def inside(self, binds: int, *, strict: bool = False) -> str:
        """The text as an operand of an operator that binds so tightly."""
        loose = self.binds < binds or (strict and self.binds == binds)
        return f"({self.text})" if loose else self.text


class Scope(Protocol):
    """What an expression may refer to: operands, mesh axes, sizes, imports."""

    def operand(self, node: Node) -> Text:
        """The name or the nested expression of an operand."""
        ...

    def axis(self, names: Sequence[str]) -> str:
        """The attribute that holds a mesh axis, or the product of several."""
        ...

    def local(self, node: Node) -> Cuts:
        """The cuts of a value."""
        ...

    def size(self, size: Size, *, of: Node) -> str:
        """A size as an expression of the sizes that this body can read; brackets around more than one term."""
        ...

    def need(self, name: str) -> str:
        """Import a name of the runtime, and return it."""
        ...

    def stream(self, node: Node) -> tuple[str, str]:
        """The random stream of a value and the dimensions in which it is cut, as expressions."""
        ...

    def device(self) -> str:
        """The device of some input of this body."""
        ...


Writer = Callable[[Node, Scope], Text]


def number(value: Any) -> str:
    """A constant as Python."""
    if isinstance(value, float) and value in (inf, -inf):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    if isinstance(value, sympy.Expr):
        return str(float(value)) if value.is_Float else str(value)
    return repr(value)


def arg(node: Node, index: int, scope: Scope) -> Text:
    """An argument, tensor or scalar."""
    value = node.args[index] if len(node.args) > index else None
    if isinstance(value, Node):
        return scope.operand(value)
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return Text(scope.size(value, of=node))
    text = number(value)
    return Text(text, UNARY if text.startswith("-") else ATOM)


def infix(symbol: str, binds: int, *, chains: bool = True) -> Writer:
    """`a + b`. A chain of the same operator on the left needs no brackets if it is associative to the left."""

    def writer(node: Node, scope: Scope) -> Text:
        left = arg(node, 0, scope).inside(binds, strict=not chains)
        right = arg(node, 1, scope).inside(binds, strict=True)
        return Text(f"{left} {symbol} {right}", binds)

    return writer


def call(name: str, *options: str) -> Writer:
    """`torch.tanh(x)`; options are attributes passed by name."""

    def writer(node: Node, scope: Scope) -> Text:
        args = [arg(node, i, scope).text for i in range(len(node.args))]
        args += [f"{o}={number(node.attrs[o])}" for o in options]
        return Text(f"{name}({', '.join(args)})")

    return writer


def method(name: str) -> Writer:
    """`x.rsqrt()`."""
    return lambda node, scope: Text(f"{arg(node, 0, scope).inside(ATOM)}.{name}()")


def join(name: str) -> Writer:
    def writer(node: Node, scope: Scope) -> Text:
        args = ", ".join(arg(node, i, scope).text for i in range(len(node.args)))
        return Text(f"torch.{name}(({args}), dim={behind(node.attrs['dim'], node.rank)})")

    return writer


def behind(dim: int, rank: int) -> int:
    """The last dimension is written as -1."""
    return -1 if dim == rank - 1 else dim
