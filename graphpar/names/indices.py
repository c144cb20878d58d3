"""What numbers range over: those that a choice makes index the axis that is chosen from, wherever they are used.

So the classes of a one-hot code, the rows of a table that is looked up by such numbers, and the bins in which they are
counted are that axis. No op alone says it: its operand is a tensor of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from graphpar.ir.graph import Graph, Node
from graphpar.names.atoms import Atoms, Product

Shown: TypeAlias = "Callable[[Node], tuple[Product, ...]]"

# Ops that give numbers in another order, shape or dtype, and some of those they are given: they read them first.
_SAME = frozenset(
    "reshape permute unsqueeze expand slice select piece segment cast upcast detach clamp repeat_interleave loop_enter "
    "gather index embedding of_rows".split()
)
_VALUES = frozenset({"sort", "topk", "max", "min"})  # their results are values, and the numbers of these


def connect(graph: Graph, axes: Shown, atoms: Atoms) -> None:
    """Unify every axis that numbers are used for with the one that they were chosen from."""
    facts: dict[Node, Product] = {}
    for node in graph.nodes:
        made = _made(node, axes, facts)
        if made is not None:
            facts[node] = made
        for own, meant in _uses(node, axes, facts):
            if own and meant and atoms.total(own) == atoms.total(meant):
                atoms.unify(own, meant)


def _made(node: Node, axes: Shown, facts: dict[Node, Product]) -> Product | None:
    """What the numbers of a node range over."""
    if node.op in _VALUES and node.attrs["part"] == 1:
        return axes(node.operands[0])[node.attrs["dims"][0] if "dims" in node.attrs else node.attrs["dim"]]
    if node.op in ("argmax", "argmin") and len(node.attrs["dims"]) == 1:
        return axes(node.operands[0])[node.attrs["dims"][0]]
    if node.op == "arange":
        every = (node.attrs["start"], node.attrs["step"]) == (0, 1) and isinstance(node.attrs["stop"], int)
        return axes(node)[0] if every else None
    if node.op in _SAME or node.op in _VALUES:
        return facts.get(node.operands[0])
    if node.op in ("cat", "stack"):
        first, *others = (facts.get(a) for a in node.operands)
        return first if all(other == first for other in others) else None
    return None


def _uses(node: Node, axes: Shown, facts: dict[Node, Product]) -> list[tuple[Product, Product]]:
    """The axes that a node uses numbers for, each with what the numbers range over."""
    given = [facts.get(a) if isinstance(a, Node) else None for a in node.args]
    found: list[tuple[Product, Product | None]] = []
    match node.op:
        case "one_hot":
            found = [(axes(node)[-1], given[0])]
        case "histc":
            counted = (node.attrs["low"], node.attrs["high"]) in ((0, node.attrs["bins"] - 1), (0, node.attrs["bins"]))
            found = [(axes(node)[0], given[0])] if counted else []
        case "embedding":
            found = [(axes(node.operands[0])[0], given[1])]
        case "index":
            found = list(zip(axes(node.operands[0]), given[1:], strict=False))
        case "gather" | "scatter" | "index_add":
            found = [(axes(node.operands[0])[node.attrs["dim"]], given[1])]
        case "eq" if all(g is not None for g in given):
            found = [(given[0] or (), given[1])]
        case _:
            pass
    return [(own, meant) for own, meant in found if meant is not None]
