"""The roles of feed-forward layers: what is wide inside, and the experts that a router chooses from."""

from __future__ import annotations

from collections.abc import Iterator

from graphpar.ir.graph import Node
from graphpar.names.infer import Unified
from graphpar.names.labels import Labels, because, nodes, single

_PRODUCTS = frozenset({"linear", "matmul", "einsum", "grouped_matmul", "embedding", "sdpa"})
_MOVES = frozenset("reshape permute unsqueeze expand slice select piece segment cast upcast index embedding".split())
_PARTS = ("expert_groups", "group_experts")  # of experts that are chosen by groups first


def experts(u: Unified, labels: Labels) -> None:
    """What is chosen from by scores that a linear makes of d_model; the choice has an axis of its own, topk."""
    model = {a for a, name in labels.names.items() if name == "d_model"}
    for node in (*nodes(u, "topk"), *nodes(u, "argmax"), *nodes(u, "max")):
        (x,) = node.operands
        dim = node.attrs["dims"][0] if "dims" in node.attrs else node.attrs["dim"]
        chosen = u.axes(x)[dim]
        scored = any(chosen == u.axes(s)[-1] and model.intersection(u.axes(s.operands[0])[-1]) for s in _scores(x))
        if not scored or (chosen[0] in labels.names and labels.names[chosen[0]] not in ("experts", _PARTS[0])):
            continue
        if len(chosen) == 1:
            labels.give(chosen[0], "experts", because(node))
        elif len(chosen) == len(_PARTS):
            for atom, name in zip(chosen, _PARTS, strict=True):
                labels.give(atom, name, because(node))
            labels.products.setdefault("experts", chosen)
        if node.op == "topk" and len(new := u.axes(node)[dim]) == 1:
            labels.give(new[0], "topk", because(node))


def rows_by_expert(u: Unified, labels: Labels) -> None:
    """Rows by expert count experts first, and the choices of a token behind the tokens."""
    for node in nodes(u, "route"):
        found = u.atoms.rows[u.signatures[node].result[0][-1]]
        single(u, labels, tuple(u.atoms.resolve([found.experts])), "experts", node)
        single(u, labels, tuple(u.atoms.resolve(found.topk)), "topk", node)


def _scores(x: Node) -> Iterator[Node]:
    """The linears that a value is made of, before any other product."""
    seen: set[Node] = set()
    stack = [x]
    while stack:
        node = stack.pop()
        if node in seen or not node.dtype.startswith(("float", "bfloat", "bool")):
            continue
        seen.add(node)
        if node.op == "linear":
            yield node
        if node.op not in _PRODUCTS:
            stack.extend(node.operands)


def feed_forward(u: Unified, labels: Labels) -> None:
    """What a product makes of d_model and another one turns into d_model again, pointwise ops between."""
    model = {a for a, name in labels.names.items() if name == "d_model"}
    into: dict[int, Node] = {}
    out: set[int] = set()
    for node, x, y in _products(u):
        if model.intersection(x):
            known = {*u.atoms.constant, *labels.names, *labels.parts}
            fresh = list(dict.fromkeys(a for a in _spread(u, y) if a not in known))
            into |= {a: node for a in fresh if len(fresh) == 1}
        if model.intersection(y):
            out |= {a for a in x if a not in labels.names}
    for atom, node in into.items():
        if atom in out:
            labels.give(atom, "d_ff", because(node))


def capacity(u: Unified, labels: Labels) -> None:
    """How many tokens an expert takes: what a product with stacked matrices has beside experts and what it sums."""
    expert = {a for a, name in labels.names.items() if name == "experts"}
    for node, gone, _ in _products(u):
        data = [x for x in node.operands if not _is_weight(x)]
        for x in data:
            atoms = [a for axis in u.axes(x) for a in axis]
            free = [a for a in atoms if a not in {*gone, *labels.names, *labels.parts, *u.atoms.constant}]
            if expert.intersection(atoms) and len(free) == 1:
                labels.give(free[0], "capacity", because(node))


def _products(u: Unified) -> Iterator[tuple[Node, tuple[int, ...], tuple[int, ...]]]:
    """Products with weights: what each sums over, and what the weights put in its place."""
    for node in u.graph.nodes:
        if node.op in ("linear", "grouped_matmul", "expert_linear"):
            yield node, u.axes(node.operands[0])[-1], u.axes(node)[-1]
        elif node.op in ("matmul", "einsum"):
            weights = [a for w in node.operands if _is_weight(w) for axis in u.axes(w) for a in axis]
            own = {a for x in node.operands if not _is_weight(x) for axis in u.axes(x) for a in axis}
            result = [a for axis in u.axes(node) for a in axis]
            gone = tuple(a for a in weights if a in own and a not in result)
            yield node, gone, tuple(a for a in result if a in weights and a not in own)


def _is_weight(node: Node) -> bool:
    """Whether a value is a parameter, in another shape or some of it."""
    while node.op in _MOVES:
        node = node.operands[0]
    return node.op == "parameter"


def _spread(u: Unified, axis: tuple[int, ...]) -> list[int]:
    """The atoms of an axis, those of each segment where it is a sum."""
    return [x for a in axis for segment in u.atoms.segments(a) for x in u.atoms.resolve(segment)]
