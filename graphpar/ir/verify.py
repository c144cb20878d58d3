"""What makes nodes a graph. A pass that breaks it is told so by name, before anything is made of the result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from graphpar.ir.graph import Graph, Node, body_path

ENDS = ("loop_enter", "loop_leave")


def problems(graph: Graph) -> list[str]:
    """Everything that is wrong with a graph, one sentence each; nothing if it is valid."""
    return [problem for rule in RULES for problem in rule(graph)]


def in_order(graph: Graph) -> Iterable[str]:
    """Operands come before what reads them, each node once, outputs among them."""
    before: set[Node] = set()
    for node in graph.nodes:
        if node in before:
            yield f"{node} is there twice"
        yield from (f"{node} reads {a}, which is not before it" for a in node.operands if a not in before)
        before.add(node)
    yield from (f"the output {o} is not in the graph" for o in graph.outputs if o not in before)


def within_bodies(graph: Graph) -> Iterable[str]:
    """What the body of a loop computes is known in that body; it leaves by `loop_leave` alone."""
    for node in graph.nodes:
        here = f"{body(node)}."
        for operand in node.operands:
            inside = body(operand)
            if inside and not here.startswith(f"{inside}.") and not _leaves(node, inside):
                yield f"{node} reads {operand}, which only {inside} knows"


def with_loops(graph: Graph) -> Iterable[str]:
    """A loop gives and takes each value by a number, and leaves with one result for each kind of body."""
    slots = Counter((n.op, n.attrs["loop"], n.attrs["slot"]) for n in graph.nodes if n.op in ENDS)
    yield from (f"{op} {slot} of {loop} is there {n} times" for (op, loop, slot), n in slots.items() if n > 1)
    for node in graph.nodes:
        if node.op in ENDS and node.attrs["loop"] not in graph.loops:
            yield f"{node} belongs to no loop of the graph"
        elif node.op == "loop_leave":
            kinds = len(set(graph.loops[node.attrs["loop"]].kinds))
            if len(node.args) != kinds:
                yield f"{node} has {len(node.args)} results for {kinds} kinds of body"


RULES = (in_order, within_bodies, with_loops)


def body(node: Node) -> str:
    """The innermost body of a loop that a node belongs to, or nothing."""
    return body_path(node.attrs["name"] if node.op in ("parameter", "buffer") else node.origin.module)


def _leaves(node: Node, inside: str) -> bool:
    return node.op == "loop_leave" and inside.rpartition(".")[0] == node.attrs["loop"]
