"""Small graphs written by hand."""

from __future__ import annotations

from math import prod
from typing import Any

from graphpar.ir.graph import Arg, Graph, Node, Origin, Size, Tensor

HERE = Origin("", "source.py", 1)


def inputs(name: str, *shape: Size, dtype: str = "int64") -> Node:
    """An input of the program."""
    return Node("input", (), {"name": name}, shape, dtype, HERE)


def parameter(name: str, *shape: int) -> Node:
    """A parameter."""
    return Node("parameter", (), {"name": name}, shape, "float32", HERE)


def op(name: str, *args: Arg, shape: tuple[Size, ...], dtype: str = "float32", **attrs: Any) -> Node:
    """Any op."""
    return Node(name, args, attrs, shape, dtype, HERE)


def reshape(x: Node, *shape: Size) -> Node:
    """The same elements, row-major, in another shape."""
    return op("reshape", x, shape=shape, dtype=x.dtype)


def permute(x: Node, *order: int) -> Node:
    """The same dimensions in another order."""
    return op("permute", x, shape=tuple(x.shape[d] for d in order), dtype=x.dtype, order=order)


def piece(x: Node, dim: int, count: int, index: int) -> Node:
    """One of `count` equal parts of a dimension."""
    size = x.shape[dim]
    assert isinstance(size, int)
    shape = (*x.shape[:dim], size // count, *x.shape[dim + 1 :])
    return op("piece", x, shape=shape, dim=dim, count=count, index=index)


def slice_(x: Node, dim: int, start: Size, stop: Size, step: int = 1) -> Node:
    """Part of a dimension."""
    assert isinstance(start, int) and isinstance(stop, int)
    size = len(range(start, stop, step))
    shape = (*x.shape[:dim], size, *x.shape[dim + 1 :])
    return op("slice", x, shape=shape, dtype=x.dtype, dim=dim, start=start, stop=stop, step=step)


def cat(*parts: Node, dim: int) -> Node:
    """Tensors side by side."""
    shape = list(parts[0].shape)
    sizes = [p.shape[dim] for p in parts]
    shape[dim] = sum(sizes[1:], sizes[0])
    return op("cat", *parts, shape=tuple(shape), dim=dim)


def linear(x: Node, w: Node, bias: Node | None = None) -> Node:
    """x w^T + b."""
    return op("linear", x, w, bias, shape=(*x.shape[:-1], w.shape[0]))


def graph(*outputs: Node) -> Graph:
    """The graph of everything that the outputs need, operands first."""
    order: dict[Node, None] = {}

    def put(node: Node) -> None:
        for operand in node.operands:
            put(operand)
        order[node] = None

    for output in outputs:
        put(output)
    tensors = {
        n.attrs["name"]: Tensor(n.attrs["name"], tuple(int(s) for s in n.shape), "float32")  # type: ignore[arg-type]
        for n in order
        if n.op == "parameter"
    }
    return Graph(tuple(order), outputs, {}, {}, tensors)


def elements(shape: tuple[int, ...]) -> int:
    """How many elements a shape has."""
    return prod(shape)
