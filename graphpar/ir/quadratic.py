"""The core of attention: values with a number for each pair of positions, and what makes them."""

from __future__ import annotations

from collections.abc import Sequence

from graphpar.ir.axes import Axis
from graphpar.ir.graph import Node


def is_core(node: Node) -> bool:
    """Whether a node has values for pairs of positions, inside it or as its result, or reads such values."""
    if node.op == "sdpa":
        return True
    return has_pairs(node.named) or any(has_pairs(operand.named) for operand in node.operands)


def has_pairs(axes: Sequence[Axis]) -> bool:
    """Whether one axis is the second use of another, as the keys' seq' is of seq."""
    factors = {f.id: f for axis in axes for f in axis.factors}
    return any(f.base in factors for f in factors.values() if f.base is not None)
