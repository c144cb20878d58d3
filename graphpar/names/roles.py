"""The names people use, attached to atoms by the role they play.

Each role is a pattern over ops, never over models: what an embedding looks up is `vocab`, what attention splits is
`heads`. A name may belong to several atoms (the d_ff of two kinds of block); an atom has one name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphpar.ir.graph import Node, reachable
from graphpar.names.experts import capacity, experts, feed_forward, rows_by_expert
from graphpar.names.infer import Unified
from graphpar.names.labels import Labels, because, nodes, single


def label(unified: Unified, labels: Labels) -> None:
    """Attach names by every role, in order; an earlier role wins, and what is declared already stays."""
    for role in ROLES:
        role(unified, labels)


def _tokens(u: Unified, labels: Labels) -> None:
    """The ids looked up in a table range over batch and seq; the table's rows are vocab, its columns d_model."""
    for node in nodes(u, "embedding"):
        table, ids = node.operands
        if table.op != "parameter" or not any(n.op == "input" for n in _numbers(ids)):
            continue
        vocab, width = u.axes(table)
        single(u, labels, vocab, "vocab", node)
        single(u, labels, width, "d_model", node)
        for name, axis in zip(("batch", "seq")[-len(u.axes(ids)) :], u.axes(ids), strict=False):
            single(u, labels, axis, name, node)


def _numbers(ids: Node) -> set[Node]:
    """What ids are made of, as far as they are made of whole numbers: a choice by scores is no id that is given."""
    found: set[Node] = set()
    stack = [ids]
    while stack:
        node = stack.pop()
        if node not in found and node.dtype.startswith("int"):
            found.add(node)
            stack.extend(node.operands)
    return found


def _positions(u: Unified, labels: Labels) -> None:
    """A table looked up by position, or sliced to the length of the sequence, has a row per position."""
    for node in nodes(u, "embedding"):
        table, ids = node.operands
        if table.op == "parameter" and not any(n.op in ("input", "parameter") for n in reachable([ids])):
            single(u, labels, u.axes(table)[0], "max_pos", node)
    for node in nodes(u, "slice"):
        (table,) = node.operands
        if table.op == "parameter" and not isinstance(node.attrs["stop"], int):
            single(u, labels, u.axes(table)[node.attrs["dim"]], "max_pos", node)


@dataclass(frozen=True)
class _Attention:
    """The axes of queries, keys and values of one attention, however it is written."""

    node: Node
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    depth: tuple[int, ...]
    value_depth: tuple[int, ...]


def _attentions(u: Unified) -> Iterator[_Attention]:
    for node in nodes(u, "sdpa"):
        q, k, v = (u.axes(a) for a in node.operands[:3])
        yield _Attention(node, q[-3], k[-3], q[-1], v[-1])
    for node in nodes(u, "softmax"):
        scores = u.axes(node)
        if len(scores) < 3 or node.attrs["dim"] != node.rank - 1:
            continue
        made, used = _producer(node), _consumer(u, node)
        if made is not None and used is not None and all(u.atoms.is_twin(a) for a in u.axes(made)[-1]):
            depth = u.axes(made.operands[0])[-1]
            yield _Attention(node, scores[-3], scores[-3], depth, u.axes(used.operands[1])[-1])


def _producer(softmax: Node) -> Node | None:
    """The product of queries and keys that a softmax normalises, through whatever scales, masks or caps it.

    Beside the keys may stand what takes a share of the weights and has no value, a sink.
    """
    node = softmax
    for _ in range(32):
        if node.op in ("matmul", "einsum"):
            return node
        beside = node.op == "cat" and node.attrs["dim"] == node.rank - 1
        inner = list(node.operands) if beside else [a for a in node.operands if a.shape == node.shape]
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
            labels.give(at.heads[0], "kv_heads", because(at.node))
            labels.give(at.heads[1], "q_group", because(at.node))
            labels.products.setdefault("heads", at.heads)
        else:
            single(u, labels, at.heads, "heads", at.node)
            labels.aliases.setdefault("kv_heads", "heads")
        single(u, labels, at.depth, "d_head", at.node)
        _halves(u, labels, at)
        same = u.atoms.total(at.depth) == u.atoms.total(at.value_depth)
        single(u, labels, at.value_depth, "d_head" if same else "d_head_v", at.node)


def _halves(u: Unified, labels: Labels, at: _Attention) -> None:
    """Rotary positions cut a head in halves."""
    parts = u.atoms.sum.get(at.depth[0], ()) if len(at.depth) == 1 else ()
    atoms = {a for part in parts for a in u.atoms.resolve(part)}
    if len(parts) == 2 and len(atoms) == 1:
        labels.give(atoms.pop(), "half", because(at.node))


def _classes(u: Unified, labels: Labels) -> None:
    """The classes of a cross-entropy are vocab, or classes if each row of tokens has one label."""
    for node in nodes(u, "cross_entropy"):
        given = [n for n in reachable([node.operands[1]]) if n.op == "input"]
        per_row = given and all(len(n.shape) == 1 for n in given)
        single(u, labels, u.axes(node.operands[0])[-1], "classes" if per_row else "vocab", node)


ROLES: tuple[Callable[[Unified, Labels], None], ...] = (
    _tokens,
    _positions,
    _heads,
    _classes,
    experts,
    rows_by_expert,
    feed_forward,
    capacity,
)


def where(labels: Labels) -> Mapping[str, str]:
    """For each name, the place that gave it first."""
    found: dict[str, str] = {}
    for atom, name in labels.names.items():
        found.setdefault(name, labels.why[atom])
    return found
