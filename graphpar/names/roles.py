"""The names people use, attached to atoms by the role they play.

Each role is a pattern over ops, never over models: what an embedding looks up is `vocab`, what attention splits is
`heads`. A name may belong to several atoms (the d_ff of two kinds of block); an atom has one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from graphpar.ir.graph import Node, reachable
from graphpar.names.infer import Unified


@dataclass
class Labels:
    """Name and role of each named atom; `products` names an atom that is a product (heads = kv_heads q_group)."""

    names: dict[int, str] = field(default_factory=dict[int, str])
    why: dict[int, str] = field(default_factory=dict[int, str])
    products: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[int, tuple[str, int, int]] = field(default_factory=dict[int, tuple[str, int, int]])

    def give(self, atom: int, name: str, why: str) -> None:
        """Name an atom that has no name yet."""
        if atom not in self.names:
            self.names[atom], self.why[atom] = name, why


def label(unified: Unified, labels: Labels) -> None:
    """Attach names by every role, in order; an earlier role wins, and what is declared already stays."""
    for role in ROLES:
        role(unified, labels)


def _tokens(u: Unified, labels: Labels) -> None:
    """The ids looked up in a table range over batch and seq; the table's rows are vocab, its columns d_model."""
    for node in _nodes(u, "embedding"):
        table, ids = node.operands
        if table.op != "parameter" or not any(n.op == "input" for n in reachable([ids])):
            continue
        vocab, width = u.axes(table)
        _single(u, labels, vocab, "vocab", node)
        _single(u, labels, width, "d_model", node)
        for name, axis in zip(("batch", "seq")[-len(u.axes(ids)) :], u.axes(ids), strict=False):
            _single(u, labels, axis, name, node)


def _positions(u: Unified, labels: Labels) -> None:
    """A table looked up by position, or sliced to the length of the sequence, has a row per position."""
    for node in _nodes(u, "embedding"):
        table, ids = node.operands
        if table.op == "parameter" and not any(n.op in ("input", "parameter") for n in reachable([ids])):
            _single(u, labels, u.axes(table)[0], "max_pos", node)
    for node in _nodes(u, "slice"):
        (table,) = node.operands
        if table.op == "parameter" and not isinstance(node.attrs["stop"], int):
            _single(u, labels, u.axes(table)[node.attrs["dim"]], "max_pos", node)


@dataclass(frozen=True)
class _Attention:
    """The axes of queries, keys and values of one attention, however it is written."""

    node: Node
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    depth: tuple[int, ...]
    value_depth: tuple[int, ...]


def _attentions(u: Unified) -> Iterator[_Attention]:
    for node in _nodes(u, "sdpa"):
        q, k, v = (u.axes(a) for a in node.operands[:3])
        yield _Attention(node, q[-3], k[-3], q[-1], v[-1])
    for node in _nodes(u, "softmax"):
        scores = u.axes(node)
        if len(scores) < 3 or node.attrs["dim"] != node.rank - 1 or not all(u.atoms.is_twin(a) for a in scores[-1]):
            continue
        made, used = _producer(node), _consumer(u, node)
        if made is not None and used is not None:
            depth = u.axes(made.operands[0])[-1]
            yield _Attention(node, scores[-3], scores[-3], depth, u.axes(used.operands[1])[-1])


def _producer(softmax: Node) -> Node | None:
    """The product of queries and keys that a softmax normalises, through whatever scales, masks or caps it."""
    node = softmax
    for _ in range(32):
        inner = [a for a in node.operands if a.shape == softmax.shape]
        if node.op in ("matmul", "einsum"):
            return node
        if not inner:
            return None
        node = inner[0] if len(inner) == 1 else _computed(inner)
    return None


def _computed(candidates: list[Node]) -> Node:
    return next((c for c in candidates if any(n.op == "parameter" for n in reachable([c]))), candidates[0])


def _consumer(u: Unified, softmax: Node) -> Node | None:
    users = u.users
    node = softmax
    for _ in range(8):
        following = [n for n in users[node] if n.operands[0] is node]
        if not following:
            return None
        node = following[0]
        if node.op in ("matmul", "einsum"):
            return node
    return None


def _heads(u: Unified, labels: Labels) -> None:
    """What attention keeps apart are heads; with fewer key and value heads, heads are kv_heads times q_group."""
    for at in _attentions(u):
        grouped = len(at.heads) == 2 and (at.heads[:1] == at.kv_heads or at.heads == at.kv_heads)
        if grouped:
            labels.give(at.heads[0], "kv_heads", _because(at.node))
            labels.give(at.heads[1], "q_group", _because(at.node))
            labels.products.setdefault("heads", at.heads)
        else:
            _single(u, labels, at.heads, "heads", at.node)
            labels.aliases.setdefault("kv_heads", "heads")
        _single(u, labels, at.depth, "d_head", at.node)
        _halves(u, labels, at)
        same = u.atoms.total(at.depth) == u.atoms.total(at.value_depth)
        _single(u, labels, at.value_depth, "d_head" if same else "d_head_v", at.node)


def _halves(u: Unified, labels: Labels, at: _Attention) -> None:
    """Rotary positions cut a head in halves."""
    parts = u.atoms.sum.get(at.depth[0], ()) if len(at.depth) == 1 else ()
    atoms = {a for part in parts for a in u.atoms.resolve(part)}
    if len(parts) == 2 and len(atoms) == 1:
        labels.give(atoms.pop(), "half", _because(at.node))


def _routed(u: Unified, labels: Labels) -> None:
    """Rows by expert count experts first, and the choices of a token last."""
    for node in _nodes(u, "route"):
        (rows,) = u.signatures[node].result
        found = u.atoms.rows[rows[-1]]
        _single(u, labels, tuple(u.atoms.resolve([found.experts])), "experts", node)
        _single(u, labels, tuple(u.atoms.resolve(found.topk)), "topk", node)


def _feed_forward(u: Unified, labels: Labels) -> None:
    """What a linear makes of d_model and another one turns into d_model again, pointwise ops between."""
    model = {a for a, name in labels.names.items() if name == "d_model"}
    into: dict[int, Node] = {}
    out: set[int] = set()
    for node in (*_nodes(u, "linear"), *_nodes(u, "expert_linear")):
        x, y = u.axes(node.operands[0])[-1], u.axes(node)[-1]
        if model.intersection(x):
            known = {*u.atoms.constant, *labels.names, *labels.parts}
            fresh = list(dict.fromkeys(a for a in _spread(u, y) if a not in known))
            into |= {a: node for a in fresh if len(fresh) == 1}
        if model.intersection(y):
            out |= {a for a in x if a not in labels.names}
    for atom, node in into.items():
        if atom in out:
            labels.give(atom, "d_ff", _because(node))


def _spread(u: Unified, axis: tuple[int, ...]) -> list[int]:
    """The atoms of an axis, those of each segment where it is a sum."""
    return [x for a in axis for segment in u.atoms.segments(a) for x in u.atoms.resolve(segment)]


def _classes(u: Unified, labels: Labels) -> None:
    """The classes of a cross-entropy are vocab, or classes if each row of tokens has one label."""
    for node in _nodes(u, "cross_entropy"):
        given = [n for n in reachable([node.operands[1]]) if n.op == "input"]
        per_row = given and all(len(n.shape) == 1 for n in given)
        _single(u, labels, u.axes(node.operands[0])[-1], "classes" if per_row else "vocab", node)


ROLES: tuple[Callable[[Unified, Labels], None], ...] = (_tokens, _positions, _heads, _classes, _routed, _feed_forward)


def _nodes(u: Unified, op: str) -> list[Node]:
    return [n for n in u.graph.nodes if n.op == op]


def _single(u: Unified, labels: Labels, axis: tuple[int, ...], name: str, node: Node) -> None:
    if len(axis) == 1 and axis[0] not in u.atoms.constant:
        labels.give(axis[0], name, _because(node))
    elif len(axis) > 1 and name.startswith("d_head"):
        for k, atom in enumerate(axis):
            labels.parts.setdefault(atom, (name, k, len(axis)))


def _because(node: Node) -> str:
    return f"{node.op} at {node.origin}"


def where(labels: Labels) -> Mapping[str, str]:
    """For each name, the place that gave it first."""
    found: dict[str, str] = {}
    for atom, name in labels.names.items():
        found.setdefault(name, labels.why[atom])
    return found
