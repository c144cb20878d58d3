"""The part of a program that a step changed: what it removed, added and changed, and what that reads and is read by.

A block that is written out for each layer, with the same changes in every one, is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpar.builds.log import home
from graphpar.ir.difference import Difference
from graphpar.ir.graph import Node

Mark: TypeAlias = Literal["added", "removed", "changed", "kept", "folded"]
LEAVES = ("parameter", "buffer", "input")
_LAYER = re.compile(r"^(.*?(?:^|\.))(\d+)(?=\.|$)")


@dataclass(frozen=True)
class Part:
    """Nodes in the order of the program, and edges between them; `times` says how often a written-out layer is there.

    A `folded` edge leads through nodes that are not shown.
    """

    marks: Mapping[Node, Mark]
    edges: Mapping[tuple[Node, Node], Mark]
    times: Mapping[str, int]


def neighbours(found: Difference) -> Part:
    """What to show of a difference."""
    focus: dict[Node, Mark] = {**dict.fromkeys(found.removed, "removed"), **dict.fromkeys(found.added, "added")}
    focus |= dict.fromkeys(found.changed, "changed")
    if not focus and not found.modules:  # values are only told something new: show it where they come from
        return Part({n: "changed" for n in found.after.nodes if n.op in LEAVES}, {}, {})
    now = {old: node for node, old in found.was.items()}
    edges = _edges(found, now)
    near = {n for edge in edges for n in edge if not focus.keys().isdisjoint(edge)}
    order = _order(found, now)
    marks: dict[Node, Mark] = {n: focus.get(n, "kept") for n in order if n in near or n in focus}
    shown = {edge: mark for edge, mark in edges.items() if edge[0] in marks and edge[1] in marks}
    shown |= _folded(found, marks, shown)
    return _once(marks, shown)


def _order(found: Difference, now: Mapping[Node, Node]) -> list[Node]:
    """The nodes on both sides, what was removed before what stood behind it."""
    order: dict[Node, None] = {}
    after = iter(found.after.nodes)
    for old in found.before.nodes:
        if (node := now.get(old)) is None:
            order[old] = None
        elif node not in order:
            for other in after:
                order[other] = None
                if other is node:
                    break
    return [*order, *after]


def _edges(found: Difference, now: Mapping[Node, Node]) -> dict[tuple[Node, Node], Mark]:
    """Who reads whom, on both sides."""
    old = {(now.get(a, a), now.get(n, n)) for n in found.before.nodes for a in n.operands}
    new = {(a, n) for n in found.after.nodes for a in n.operands}
    edges: dict[tuple[Node, Node], Mark] = {e: "kept" if e in old else "added" for e in _ordered(found.after.nodes)}
    for edge in ((now.get(a, a), now.get(n, n)) for a, n in _ordered(found.before.nodes)):
        if edge not in new and not _leads(found, *edge):
            edges[edge] = "removed"
    return edges


def _ordered(nodes: Iterable[Node]) -> list[tuple[Node, Node]]:
    return [(a, n) for n in nodes for a in dict.fromkeys(n.operands)]


def _leads(found: Difference, tail: Node, head: Node) -> bool:
    """Whether a value still gets there, by way of what was added."""
    stack = [head]
    while stack:
        for operand in stack.pop().operands:
            if operand is tail:
                return True
            if operand not in found.was:
                stack.append(operand)
    return False


def _folded(
    found: Difference, marks: Mapping[Node, Mark], edges: Mapping[tuple[Node, Node], Mark]
) -> dict[tuple[Node, Node], Mark]:
    """Edges for what flows through nodes that are not shown, except where a shown path says so already."""
    sources: dict[Node, dict[Node, None]] = {}
    above: dict[Node, set[Node]] = {}
    folded: dict[tuple[Node, Node], Mark] = {}
    for node in found.after.nodes:
        through: dict[Node, None] = {}
        for operand in node.operands:
            through |= {} if operand in marks else sources[operand]
        if node not in marks:
            sources[node] = through | {a: None for a in node.operands if a in marks}
            continue
        direct = [a for a in node.operands if a in marks]
        above[node] = {n for a in direct for n in (a, *above[a])}
        for tail in reversed(through):
            if tail not in above[node]:
                folded[tail, node] = "folded"
                above[node] |= {tail, *above[tail]}
    return folded


# ------------------------------------------------------------ layers that are written out


def _once(marks: Mapping[Node, Mark], edges: Mapping[tuple[Node, Node], Mark]) -> Part:
    """The first of the layers that are changed alike stands for all of them."""
    layers: dict[str, list[Node]] = {}
    for node in marks:
        if layer := layer_of(node):
            layers.setdefault(layer, []).append(node)
    first: dict[object, str] = {}
    stands: dict[Node, Node] = {}
    times: dict[str, int] = {}
    for layer, nodes in layers.items():
        chosen = first.setdefault(_form(layer, nodes, marks), layer)
        times[chosen] = times.get(chosen, 0) + 1
        stands |= dict(zip(nodes, layers[chosen], strict=True))
    kept = {n: mark for n, mark in marks.items() if stands.get(n, n) is n}
    drawn: dict[tuple[Node, Node], Mark] = {}
    for (tail, head), mark in edges.items():
        edge = stands.get(tail, tail), stands.get(head, head)
        back = edge != (tail, head) and layer_of(tail) != layer_of(head) and layer_of(edge[0]) == layer_of(edge[1])
        if not (back and layer_of(edge[0])):  # else from one layer to the next
            drawn.setdefault(edge, mark)
    return Part(kept, drawn, {layer: n for layer, n in times.items() if n > 1})


def layer_of(node: Node) -> str:
    """The outermost member of a list that a node lies in: `layers.3`; nothing outside of lists."""
    found = _LAYER.match(home(node))
    return found[1] + found[2] if found else ""


def _form(layer: str, nodes: list[Node], marks: Mapping[Node, Mark]) -> object:
    """What two layers that are changed alike have in common."""
    numbers = {node: i for i, node in enumerate(nodes)}
    around = layer.rpartition(".")[0]
    return around, tuple(
        (home(n)[len(layer) :], marks[n], n.op, n.note, tuple(numbers.get(a, -1) for a in n.operands if a in marks))
        for n in nodes
    )
