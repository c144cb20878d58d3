"""Other forms of an op, for layouts in which it cannot run as it is written."""

from __future__ import annotations

from dataclasses import replace

from graphpar.ir.axes import Axis
from graphpar.ir.graph import Node, Size


def masked(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """Causal attention with its mask in the open, and the nodes that make the mask.

    A kernel's own mask takes the first query for the first token.
    """
    queries, length = node.named[-2], node.shape[-2]
    keys, count = node.views[1], node.operands[1].shape[-2]
    assert keys is not None
    where = replace(node.origin, names=())
    key = Node("arange", (), _to(count), (count,), "int64", where, (keys[-2],), ())
    query = Node("arange", (), _to(length), (length,), "int64", where, (queries,), ())
    column = Node("unsqueeze", (query,), {"dim": 1}, (length, 1), "int64", where, (queries, Axis()), ((queries,),))
    both = (queries, keys[-2])
    mask = Node("le", (key, column), {}, (length, count), "bool", where, both, ((keys[-2],), (queries, Axis())))
    views = (*node.views[:3], both)
    plain = replace(node, args=(*node.args[:3], mask), attrs={**node.attrs, "causal": False}, operand_axes=views)
    return plain, (key, query, column, mask)


def _to(stop: Size) -> dict[str, Size]:
    return {"start": 0, "stop": stop, "step": 1}


def bias_apart(node: Node) -> tuple[Node, Node]:
    """A linear op without its bias, and the bias added to that: once, after the sum."""
    bias = node.args[2]
    assert isinstance(bias, Node) and node.operand_axes is not None and node.axes is not None
    product = replace(node, args=(*node.args[:2], None), operand_axes=(*node.operand_axes[:2], None))
    axes = (node.axes, node.operand_axes[2])
    return product, Node("add", (product, bias), {}, node.shape, node.dtype, node.origin, node.axes, axes)
