"""Two priorities: what runs by expert is cut by experts first, all else as the layout says.

With one priority an exchange would be a gather and a sum. So the ops between dispatch and combine, and the parameters
that they alone read, follow the rule of `moe` before all others; what brings tokens to experts and back does not.

On a mesh axis that cuts experts, or something inside an expert, and not the tokens that are sent there, each rank is
given all rows (R) and gives back a summand (P): what a rank of the axis adds is the work of its experts, or its part
of the work of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphpar.ir.axes import Axis
from graphpar.ir.graph import Graph, Node, reachable
from graphpar.ir.states import I, P, R, State

ENDS = ("route", "dispatch", "combine")
ROW_MOVES = frozenset({"all_to_all", "slice_partial", "pad_partial"})  # what changes which rows a rank has
ROUTING_MOVES = frozenset({"all_to_all", "slice_"})


@dataclass(frozen=True)
class Experts:
    """What runs by expert in a graph.

    `inside` follows the rule of `moe` first; `routing` gives the route of each value by row, of dispatch and of
    combine; `by` the ops by expert of each route.
    """

    inside: frozenset[Node] = frozenset()
    routing: Mapping[Node, Node] = field(default_factory=dict[Node, Node])
    by: Mapping[Node, tuple[Node, ...]] = field(default_factory=dict[Node, tuple[Node, ...]])


def experts(graph: Graph) -> Experts:
    """Find what runs by expert."""
    routing: dict[Node, Node] = {}
    for node in graph.nodes:
        if node.op == "route":
            routing[node] = node
        elif (found := next((routing[a] for a in node.operands if a in routing and a.ragged), None)) is not None:
            routing[node] = found
    by_row = [n for n in routing if n.ragged and n.op not in ("route", "dispatch")]
    inside = {*by_row, *_stacked(graph)}
    by: dict[Node, list[Node]] = {}
    for node in by_row:
        by.setdefault(routing[node], []).append(node)
    return Experts(frozenset(inside | _own(graph, inside)), routing, {r: tuple(n) for r, n in by.items()})


def _stacked(graph: Graph) -> set[Node]:
    """Ops on values with a dimension of experts, from the first product with stacked matrices to the last.

    So it is where a dense tensor says which token goes where: what makes it, and what combines, is not among them.
    """
    fed = _fed(graph)
    found: set[Node] = set()
    for node in graph.nodes:
        ids = _experts(node)
        read = [a for a in node.operands if a in fed and _experts(a) & ids]
        stacks = [a for a in node.operands if a not in fed and a.rank > 2 and _experts(a) & ids]
        product = node.op in ("einsum", "matmul") and stacks and read
        if ids and (product or not found.isdisjoint(read)) and not node.ragged:
            found.add(node)
    return found


def _experts(node: Node) -> set[int]:
    return {f.id for axis in node.named for f in axis.factors if f.name == "experts"}


def _fed(graph: Graph) -> set[Node]:
    """What depends on an input."""
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op in ("input", "loop_enter") or not found.isdisjoint(node.operands):
            found.add(node)
    return found


def _own(graph: Graph, inside: set[Node]) -> set[Node]:
    """Parameters that what runs by expert reads alone, and what is computed from them for it."""
    fed, users = _fed(graph), graph.users()
    own: set[Node] = set()
    for node in reversed(graph.nodes):
        if node not in fed and node.op != "constant" and users[node] and set(users[node]) <= inside | own:
            own.add(node)
    return own & reachable(inside)


def whole(tokens: Mapping[str, int], linears: Iterable[Mapping[str, int]], rows: Axis, *, exchange: bool) -> set[str]:
    """The mesh axes on which each rank is given all rows of its tokens.

    `tokens` are the claims of the tokens to be sent, `linears` those of the products by expert, from mesh axis to
    factor. An axis that cuts tokens before and experts behind exchanges them, if `exchange`.
    """
    found: set[str] = set()
    for claims in linears:
        for axis, factor in claims.items():
            inside = all(f.id != factor for f in rows.factors)
            exchanged = exchange and axis in tokens
            if inside or (factor == rows.factors[0].id and not exchanged):
                found.add(axis)
    return found


def held(node: Node, given: Mapping[Node, State], *, whole: bool) -> tuple[tuple[State, ...], State] | None:
    """What an op needs of each operand along an axis that it does not cut, and what its result is; None if nothing
    special. `given` are the operands' states, `whole` whether each rank is given all rows there."""
    routed = [a.dtype == "routing" for a in node.operands]
    if node.op == "dispatch" and whole:
        return (R, I), R
    if node.op == "combine" and whole:
        return (P, *(R for _ in node.operands[1:-1]), I), P
    if node.op == "expert_bias" and given[node.operands[0]] == P:
        return (P, P, I), P  # the bias is a summand on the first rank alone
    if any(given[a] == R and a.ragged for a in node.operands):
        return tuple(I if r else R for r in routed), R
    return None
