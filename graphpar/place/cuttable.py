"""Which factors an op may have cut."""

from __future__ import annotations

from collections.abc import Mapping

from graphpar.ir.axes import Axis
from graphpar.ir.graph import Node
from graphpar.ir.states import I, P, State
from graphpar.names.named import Use

# Ops that have a way of their own to run with an axis cut that others need whole (see `runtime.statistics`): statistics
# of one dimension, so a norm over several is not among them.
SPLIT = frozenset({"layer_norm", "rms_norm", "softmax"})
# Ops that look up or reduce over classes, and the state of their result where the classes are cut.
CLASSES: Mapping[str, tuple[int, State]] = {"embedding": (0, P), "cross_entropy": (0, I)}
# Ops that make a factor which no operand has: each rank makes its part of the copies.
COPIES = frozenset({"expand", "repeat_interleave"})


def cuttable(node: Node, use: Use) -> dict[int, list[Axis]]:
    """The factors that an op may have cut, with the axes of operands and result that contain them."""
    found: dict[int, list[Axis]] = {}
    views = [v for v in node.views if v is not None]
    for axes in (*views, node.named):
        for axis in axes:
            for factor in axis.factors:
                if not factor.constant and factor.base is None:
                    found.setdefault(factor.id, []).append(axis)
    never = _twice(node, use) | _one_sided(node, use) | _inner_classes(node)
    never |= set() if splits(node) else use.whole
    return {f: axes for f, axes in found.items() if f not in never}


def even(node: Node, use: Use) -> set[int]:
    """The factors that padding would spoil in an op: it sums them, normalises over them, or has them beside others.

    Lookups and losses over classes know which of them are padding.
    """
    found = set(use.summed | use.whole)
    if node.op in CLASSES:
        found -= {f.id for f in _classes(node).factors}
    for axes in (*(v for v in node.views if v is not None), node.named):
        found |= {f.id for axis in axes if len(axis.factors) > 1 or not axis.plain for f in axis.factors}
    return found


def splits(node: Node) -> bool:
    """Whether an op can run with what it needs whole cut."""
    return node.op in SPLIT and node.attrs.get("dims", 1) == 1


def is_class(node: Node, factor: int) -> bool:
    """Whether a factor is one of an op's classes, for an op that has any."""
    return any(f.id == factor for f in _classes(node).factors)


def _classes(node: Node) -> Axis:
    axes = node.views[CLASSES[node.op][0]]
    assert axes is not None
    return axes[0] if node.op == "embedding" else axes[-1]


def _inner_classes(node: Node) -> set[int]:
    """Factors of classes whose cut would leave a rank with classes that are not consecutive."""
    if node.op not in CLASSES:
        return set()
    axis = _classes(node)
    return {f.id for f in (axis.factors[1:] if axis.plain else axis.factors)}


def _twice(node: Node, use: Use) -> set[int]:
    """Factors that cut two dimensions of one tensor, or one that is summed and one that is kept.

    A rank would have the diagonal blocks only.
    """
    kept = {f.id for axis in node.named for f in axis.factors}
    found = kept & use.summed
    for axes in (*(v for v in node.views if v is not None), node.named):
        each = [f.id for axis in axes for f in axis.factors]
        found |= {f for f in each if each.count(f) > 1}
    return found


def _one_sided(node: Node, use: Use) -> set[int]:
    """Factors that operands or the result have alone, and that are neither summed nor copies.

    So it is where one side has a factor and the other the segments that it is made of.
    """
    if not node.operands:
        return set()
    left = {f.id for view in node.views for axis in view or () for f in axis.factors}
    right = {f.id for axis in node.named for f in axis.factors}
    return (left - right - use.summed) | (set() if node.op in COPIES else right - left)
