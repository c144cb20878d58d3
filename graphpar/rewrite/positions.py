"""Values that depend on sizes alone, as functions of position.

A causal mask built from forty nodes of arange, index, diff and cumsum is, element by element, `k <= q`. Each such value
is evaluated symbolically: an expression in one index per dimension, exact for every batch and seq. It is then written
out again with as few ops as the expression needs.
"""

from __future__ import annotations

from graphpar.ir.graph import Graph, Node, body_path, rebuild
from graphpar.rewrite.evaluate import functions
from graphpar.rewrite.spelling import Places, Spelling


def places(graph: Graph) -> Places:
    """Where positions of each size are counted first, in each body of a loop and outside of them."""
    return {(n.shape[0], body_path(n.origin.module)): n.origin for n in reversed(graph.nodes) if n.op == "arange"}


def rewrite(graph: Graph, counted: Places) -> Graph:
    """Replace each function of position that something else reads by its shortest spelling.

    Positions are counted where `counted` says, or else in the model itself.
    """
    known = functions(graph)
    users = graph.users()
    roots = {n for n in known if n.op != "arange" and any(u not in known for u in users[n])}
    spelled: dict[Node, Node] = {}
    shared: dict[object, Node] = {}
    for node in roots:
        made = Spelling(node, shared, counted).write(known[node])
        if made is not None:
            spelled[node] = made
    originals = iter(graph.nodes)

    def rule(_: Node) -> Node | None:
        return spelled.get(next(originals))

    return rebuild(graph, rule)
