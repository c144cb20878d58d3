"""Layers that are written out one by one and changed alike: the first stands for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from graphpar.builds.log import home
from graphpar.ir.graph import Node
from graphpar.viz.neighbours import Edge, Mark, Part

_LAYER = re.compile(r"^(.*?(?:^|\.))(\d+)(?=\.|$)")


def once(part: Part) -> tuple[Part, Mapping[str, int]]:
    """The part without the layers that others stand for, and how many each layer stands for."""
    layers: dict[str, list[Node]] = {}
    for node in dict.fromkeys([*part.tensors, *part.marks]):
        if layer := layer_of(node):
            layers.setdefault(layer, []).append(node)
    first: dict[object, str] = {}
    stands: dict[Node, Node] = {}
    times: dict[str, int] = {}
    for layer, nodes in layers.items():
        chosen = first.setdefault(_form(layer, nodes, part), layer)
        times[chosen] = times.get(chosen, 0) + 1
        stands |= dict(zip(nodes, layers[chosen], strict=True))
    left = lambda nodes: {n: said for n, said in nodes.items() if stands.get(n, n) is n}  # noqa: E731
    return Part(left(part.marks), dict(_edges(part, stands)), left(part.tensors)), times


def layer_of(node: Node) -> str:
    """The outermost member of a list that a node lies in: `layers.3`; nothing outside of lists."""
    found = _LAYER.match(home(node))
    return found[1] + found[2] if found else ""


def _edges(part: Part, stands: Mapping[Node, Node]) -> Iterable[tuple[Edge, Mark]]:
    """The edges between what is left; one from a layer to the next would lead back to what stands for both."""
    for (tail, head), mark in part.edges.items():
        edge = stands.get(tail, tail), stands.get(head, head)
        here = layer_of(edge[0])
        if not here or here != layer_of(edge[1]) or layer_of(tail) == layer_of(head):
            yield edge, mark


def _form(layer: str, nodes: list[Node], part: Part) -> object:
    """What two layers that are changed alike have in common."""
    numbers = {node: i for i, node in enumerate(nodes)}
    around = layer.rpartition(".")[0]
    return (
        around,
        tuple(
            (
                home(n)[len(layer) :],
                n.op,
                n.note,
                part.marks.get(n),
                tuple((mark, done.op, done.note) for mark, done in part.tensors.get(n, ())),
            )
            for n in nodes
        ),
        frozenset((numbers[a], numbers[b], mark) for (a, b), mark in part.edges.items() if {a, b} <= numbers.keys()),
    )
