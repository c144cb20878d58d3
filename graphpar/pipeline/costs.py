"""What each layer costs, in floating-point operations of one sequence's forward: for stages of even time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import sympy

from graphpar.ir.graph import Graph, Node, Size, plain

LONGEST = 1024  # the length of a sequence, where the model's positions allow it
_FREE = ("parameter", "buffer", "input", "embedding", "loop_enter", "loop_leave")


@dataclass(frozen=True)
class LayerCosts:
    """Operations of each layer, and of what the model does before the first of them and behind the last."""

    before: float
    layers: tuple[float, ...]
    behind: float


def costs(graph: Graph, path: str) -> LayerCosts:
    """The costs of the members of the list at `path`, and of the rest of the model.

    What belongs to no layer is counted with the last layer that it depends on.
    """
    count = graph.lists()[path]
    seq = _length(graph)
    after: dict[Node, int] = {}  # the last layer that a value depends on
    found = dict.fromkeys(range(-1, count), 0.0)
    behind = 0.0
    for node in graph.nodes:
        latest = max((after[a] for a in node.operands), default=-1)
        places = list(layers_of(graph, node, path))
        own = [i for i in places if i is not None]
        after[node] = max([latest, *own])
        cost = operations(node, seq)
        for index in own:
            found[index] += cost
        outside = cost * (len(places) - len(own))
        if latest == count - 1:
            behind += outside
        else:
            found[latest] += outside
    return LayerCosts(found[-1], tuple(found[i] for i in range(count)), behind)


def layers_of(graph: Graph, node: Node, path: str) -> Iterator[int | None]:
    """For each time that an op runs, the member of the list at `path` that it belongs to, if any.

    A loop leaves with what its last member made.
    """
    if node.op == "loop_leave" and node.attrs["loop"] == path:
        yield graph.lists()[path] - 1
        return
    for place in graph.members(node.origin.module):
        yield layer(place, path)


def layer(place: str, path: str) -> int | None:
    """The member of the list at `path` that a module is or lies in."""
    part = plain(place).removeprefix(f"{path}.").split(".")[0] if plain(place).startswith(f"{path}.") else ""
    return int(part) if part.isdigit() else None


def operations(node: Node, seq: int) -> float:
    """Those of one op on one sequence: two for each multiplication of a product, and one for an element elsewhere.

    Attention counts every pair of positions, also where later ones are masked.
    """
    shape = _sizes(node.shape, seq)
    shapes = [_sizes(a.shape, seq) for a in node.operands]
    match node.op:
        case "linear" | "matmul":
            return 2 * prod(shape) * shapes[0][-1]
        case "einsum":
            terms = node.attrs["equation"].partition("->")[0].split(",")
            sizes = {k: n for term, s in zip(terms, shapes, strict=True) for k, n in zip(term, s, strict=True)}
            return 2 * prod(sizes.values())
        case "sdpa":
            query, key, value = shapes[:3]
            return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
        case op if op in _FREE:
            return 0
        case _:
            return max([prod(shape), *map(prod, shapes[:1])])


def _length(graph: Graph) -> int:
    """As long as tables of positions allow, up to a usual length."""
    fed: set[Node] = set()
    rows: list[int] = []
    for node in graph.nodes:
        if node.op == "input" or fed.intersection(node.operands):
            fed.add(node)
        if node.op == "embedding" and not fed.intersection(node.operands):
            rows += [n for n in node.operands[0].shape[:1] if isinstance(n, int)]
        if node.op == "slice" and isinstance(node.attrs["stop"], sympy.Expr):
            size = node.operands[0].shape[node.attrs["dim"]]
            rows += [size] if isinstance(size, int) else []
    return min([LONGEST, *rows])


def _sizes(shape: tuple[Size, ...], seq: int) -> list[int]:
    return [_size(s, seq) for s in shape]


def _size(size: Size, seq: int) -> int:
    if isinstance(size, int):
        return size
    return int(size.subs({s: 1 if str(s) == "batch" else seq for s in size.free_symbols}))
