"""The part of a program that a step changed: what it removed, added and changed, and what that reads and is read by.

What happens to parameters before anything else reads them is told apart from the flow of values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphpar.ir.difference import Difference
from graphpar.ir.graph import Node

Mark: TypeAlias = Literal["added", "removed", "changed", "kept", "folded"]
Edge: TypeAlias = "tuple[Node, Node]"
TENSORS = ("parameter", "buffer")


@dataclass(frozen=True)
class Part:
    """Nodes in the order of the program, and edges between them; a `folded` one leads through what is not shown.

    `tensors` has what was done to each parameter and buffer alone, in order.
    """

    marks: Mapping[Node, Mark]
    edges: Mapping[Edge, Mark]
    tensors: Mapping[Node, tuple[tuple[Mark, Node], ...]]


def neighbours(found: Difference) -> Part:
    """What to show of a difference."""
    focus: dict[Node, Mark] = {**dict.fromkeys(found.removed, "removed"), **dict.fromkeys(found.added, "added")}
    focus |= dict.fromkeys(found.changed, "changed")
    if not focus and not found.modules:  # values are only told something new: show it where they come from
        return Part({}, {}, {n: () for n in found.after.nodes if n.op in (*TENSORS, "input")})
    now = {old: node for node, old in found.was.items()}
    order = _order(found, now)
    tensor = _tensors(order, now)
    edges: dict[Edge, Mark] = {edge: mark for edge, mark in _edges(found, now).items() if edge[0] not in tensor}
    flow = focus.keys() - tensor.keys()
    near = {n for edge in edges for n in edge if not flow.isdisjoint(edge)}
    marks: dict[Node, Mark] = {n: focus.get(n, "kept") for n in order if n in near or n in flow}
    shown: dict[Edge, Mark] = {edge: mark for edge, mark in edges.items() if edge[0] in marks and edge[1] in marks}
    done: dict[Node, list[tuple[Mark, Node]]] = {}
    for node in (n for n in order if n in focus and n in tensor):
        done.setdefault(now.get(tensor[node], tensor[node]), []).append((focus[node], node))
    return Part(marks, shown | _folded(found, marks), {n: tuple(whole) for n, whole in done.items()})


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


def _tensors(order: Iterable[Node], now: Mapping[Node, Node]) -> dict[Node, Node]:
    """What is computed from parameters and buffers alone, with the first of these."""
    found: dict[Node, Node] = {}
    for node in order:
        if node.op in TENSORS:
            found[node] = node
        elif (reads := [now.get(a, a) for a in node.operands]) and all(a in found for a in reads):
            found[node] = found[reads[0]]
    return found


def _edges(found: Difference, now: Mapping[Node, Node]) -> dict[Edge, Mark]:
    """Who reads whom, on both sides."""
    old = [(now.get(a, a), now.get(n, n)) for a, n in _reads(found.before.nodes)]
    known = set(old)
    edges: dict[Edge, Mark] = {edge: "kept" if edge in known else "added" for edge in _reads(found.after.nodes)}
    for edge in old:
        if edge not in edges and not (edge[1] in found.was and _leads(found, *edge)):
            edges[edge] = "removed"
    return edges


def _reads(nodes: Iterable[Node]) -> list[Edge]:
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


def _folded(found: Difference, marks: Mapping[Node, Mark]) -> dict[Edge, Mark]:
    """Edges for what flows through nodes that are not shown, except where a shown path says so already."""
    sources: dict[Node, dict[Node, None]] = {}
    above: dict[Node, set[Node]] = {}
    folded: dict[Edge, Mark] = {}
    for node in found.after.nodes:
        direct = [a for a in node.operands if a in marks]
        through = {n: None for a in node.operands if a not in marks for n in sources[a]}
        if node not in marks:
            sources[node] = through | dict.fromkeys(direct)
            continue
        above[node] = {n for a in direct for n in (a, *above[a])}
        for tail in reversed(through):
            if tail not in above[node]:
                folded[tail, node] = "folded"
                above[node] |= {tail, *above[tail]}
    return folded
