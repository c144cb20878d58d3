"""Copies that broadcasting makes anyway.

What it does   an expand is dropped where the op that reads it broadcasts, and moved behind lookups and unary ops.
Why            a position table looked up once per sequence, not once per batch row, has no batch axis to shard.
When not       the reader needs the full shape.
"""

from collections.abc import Callable
from dataclasses import replace

from graphpar.ir.graph import Node, Size
from graphpar.rewrite.passes import Pass


def binary(node: Node) -> Node | None:
    """Compute with as few elements as the operands have, and copy what the other operands' shapes do not."""
    if not any(a.op == "expand" for a in node.operands):
        return None
    args = tuple(a.operands[0] if isinstance(a, Node) and a.op == "expand" else a for a in node.args)
    shape = _broadcast([a.shape for a in args if isinstance(a, Node)])
    if shape == node.shape:
        return replace(node, args=args)
    return _expanded(replace(node, args=args, shape=shape), node)


def embedding(node: Node) -> Node | None:
    """Look up once, then copy."""
    table, ids = node.operands
    if ids.op != "expand":
        return None
    (x,) = ids.operands
    return _expanded(replace(node, args=(table, x), shape=(*x.shape, node.shape[-1])), node)


def attention(node: Node) -> Node | None:
    """A mask broadcasts over batch and heads by itself."""
    mask = node.args[3]
    if isinstance(mask, Node) and mask.op == "expand":
        return replace(node, args=(*node.args[:3], mask.operands[0]))
    return None


def _expanded(small: Node, like: Node) -> Node:
    return Node("expand", (small,), {}, like.shape, like.dtype, like.origin)


def _broadcast(shapes: list[tuple[Size, ...]]) -> tuple[Size, ...]:
    rank = max((len(s) for s in shapes), default=0)
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((s for s in sizes if s != 1), 1) for sizes in zip(*padded, strict=True))


def unary(node: Node) -> Node | None:
    """Compute once, then copy."""
    (x,) = node.operands
    if x.op != "expand":
        return None
    return _expanded(replace(node, args=(x.operands[0],), shape=x.operands[0].shape), node)


_BINARY = "add sub mul div pow eq ne lt le gt ge and or where maximum minimum".split()
_UNARY = "neg exp log tanh sigmoid cos sin rsqrt sqrt cast upcast logical_not".split()

rules: dict[str, Callable[[Node], Node | None]] = {
    **dict.fromkeys(_BINARY, binary),
    **dict.fromkeys(_UNARY, unary),
    "embedding": embedding,
    "sdpa": attention,
}

broadcast = Pass(rules)
