"""Values that one statement makes together: all parts of a dimension, or all results of a call."""

from __future__ import annotations

from collections.abc import Iterable

from graphpar.codegen.choices import RESULTS
from graphpar.codegen.tree import Item, Statement
from graphpar.ir.graph import Node

_PARTS = frozenset({"piece", "segment"})
TOGETHER = _PARTS | RESULTS  # what is never written inside of another expression


def groups(items: Iterable[Item]) -> dict[Node, list[Node]]:
    """The values of one statement, in order, by each of them, where all of them are used."""
    calls: dict[object, list[Node]] = {}
    for item in items:
        if isinstance(item, Statement) and item.node.op in TOGETHER:
            node = item.node
            same = {k: v for k, v in node.attrs.items() if k not in ("index", "part")}
            calls.setdefault((node.operands, node.op, repr(same)), []).append(node)
    found: dict[Node, list[Node]] = {}
    for members in calls.values():
        if sorted(map(_number, members)) == list(range(_count(members[0]))):
            found |= dict.fromkeys(members, sorted(members, key=_number))
    return found


def _number(node: Node) -> int:
    return node.attrs["index" if node.op in _PARTS else "part"]


def _count(node: Node) -> int:
    return 2 if node.op in RESULTS else node.attrs.get("count") or len(node.attrs["sizes"])
