"""One ATen call, and what it becomes without a word of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

from graphpar.ir.graph import Arg, Node, Origin, Size


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen call: its arguments with tensors already translated, and what the result looks like."""

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shape: tuple[Size, ...]
    dtype: str
    origin: Origin
    parts: tuple[tuple[tuple[Size, ...], str], ...] = ()

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """An argument given by position or by name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    def node(self, op: str, *args: Arg, **attrs: Any) -> Node:
        """The result as a node."""
        return Node(op, args, attrs, self.shape, self.dtype, self.origin)

    def dim(self, index: int, name: str, default: int = 0, rank: int | None = None) -> int:
        """A dimension argument, counted from the front."""
        value = self.arg(index, name, default)
        return value % (len(self.shape) if rank is None else rank)


Result: TypeAlias = "Node | tuple[Node, ...]"


Handler: TypeAlias = "Callable[[Call], Result]"


def simplify_size(value: Any) -> Size:
    """A size as an int where it is one."""
    expression = sympy.sympify(value)
    return int(expression) if expression.is_Integer else expression


def is_sequence(value: Any) -> bool:
    """Whether an argument is a list of arguments."""
    return isinstance(value, Sequence) and not isinstance(value, str)


def other(call: Call) -> Result:
    """An op that graphpar has no word for: kept under its own name, its tensors numbered in the call."""
    flat: list[Node] = []
    attrs = {"call": _slots(call.args, flat), "words": {k: _slots(v, flat) for k, v in call.kwargs.items()}}
    if call.parts:
        return tuple(
            Node(call.target, tuple(flat), attrs | {"part": i}, shape, dtype, call.origin)
            for i, (shape, dtype) in enumerate(call.parts)
        )
    return Node(call.target, tuple(flat), attrs, call.shape, call.dtype, call.origin)


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor in a call: the number of the operand."""

    index: int


def _slots(value: Any, flat: list[Node]) -> Any:
    if isinstance(value, Node):
        flat.append(value)
        return Slot(len(flat) - 1)
    return tuple(_slots(v, flat) for v in value) if is_sequence(value) else value
