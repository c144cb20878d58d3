"""What a rewrite did to a graph: the nodes that it removed, added and changed.

Nodes are immutable, and one whose operand is replaced is made anew. So nodes are paired first by identity, then by what
they compute from paired operands, then by what they compute and where, and last by where alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from graphpar.ir.graph import Graph, Node

Key: TypeAlias = "Callable[[Node], Hashable]"


@dataclass(frozen=True)
class Difference:
    """`was` gives for a node of the graph after the rewrite the one that it was before.

    `changed` are those among them that compute something else, each with what changed in it. `axes` and `states` count
    the nodes that were only told something new about their value. `modules` says what became of whole modules.
    """

    before: Graph
    after: Graph
    was: Mapping[Node, Node]
    removed: tuple[Node, ...]
    added: tuple[Node, ...]
    changed: Mapping[Node, str]
    axes: int
    states: int
    modules: Mapping[str, str]

    @property
    def empty(self) -> bool:
        """Whether nothing happened at all."""
        return not (self.removed or self.added or self.changed or self.axes or self.states or self.modules)


def difference(before: Graph, after: Graph) -> Difference:
    """Compare the graphs on both sides of a rewrite."""
    was = _paired(before, after)
    found = set(was.values())
    removed = tuple(n for n in before.nodes if n not in found)
    added = tuple(n for n in after.nodes if n not in was)
    changed = {n: text for n in after.nodes if n in was and (text := _change(was[n], n))}
    changed |= _redirected(before, after, was, removed)
    return Difference(
        before,
        after,
        was,
        removed,
        added,
        changed,
        axes=sum(n.axes != old.axes for n, old in was.items()),
        states=sum(n.state != old.state for n, old in was.items()),
        modules=_modules(before, after),
    )


# ------------------------------------------------------------ pairs


def _paired(before: Graph, after: Graph) -> dict[Node, Node]:
    old = set(before.nodes)
    was = {n: n for n in after.nodes if n in old}
    for key, whole in ((_itself, True), (_itself, False), (_place, False)):
        _pair(before, after, was, key, whole=whole)
    return was


def _pair(before: Graph, after: Graph, was: dict[Node, Node], key: Key, *, whole: bool) -> None:
    """Pair what has the same key, the one with the most operands in common; `whole`: with all of them."""
    taken = set(was.values())
    left: dict[Hashable, list[Node]] = {}
    for node in before.nodes:
        if node not in taken:
            left.setdefault(key(node), []).append(node)
    for node in after.nodes:
        candidates = left.get(key(node), []) if node not in was else []
        if whole:
            candidates = [c for c in candidates if _reads_the_same(c, node, was)]
        if candidates:
            best = max(candidates, key=lambda c: _in_common(c, node, was))
            was[node] = best
            left[key(node)].remove(best)


def _reads_the_same(old: Node, node: Node, was: Mapping[Node, Node]) -> bool:
    return [was.get(a) for a in node.operands] == list(old.operands)


def _in_common(old: Node, node: Node, was: Mapping[Node, Node]) -> int:
    return sum(was.get(a) is b for a, b in zip(node.operands, old.operands, strict=False))


def _itself(node: Node) -> Hashable:
    """All that a node computes, but for its operands."""
    scalars = tuple(map(_scalar, node.args))
    attrs = tuple(sorted((k, _any_body(str(v))) for k, v in node.attrs.items()))
    return (*_where(node), node.op, attrs, scalars, str(node.shape), node.dtype)


def _place(node: Node) -> Hashable:
    """The op, and where the source has it."""
    named = tuple(_any_body(str(node.attrs.get(word))) for word in ("name", "loop", "slot", "axis", "index"))
    return (*_where(node), node.op, named)


def _where(node: Node) -> tuple[Hashable, ...]:
    return _any_body(node.origin.module), node.origin.file, node.origin.line


def _any_body(path: str) -> str:
    """Bodies of a loop may be told apart by a rewrite, and are then numbered."""
    return re.sub(r"\*\d+", "*", path)


# ------------------------------------------------------------ changes


def _change(old: Node, node: Node) -> str:
    """What a node computes otherwise than before, in a few words; nothing if it does not."""
    if old is node:
        return ""
    found = [f"{k} = {_said(v)}" for k, v in node.attrs.items() if k not in old.attrs or _differ(old.attrs[k], v)]
    found += [f"no {k}" for k in old.attrs if k not in node.attrs]
    if str(old.shape) != str(node.shape):
        found.append(f"[{_sizes(old)}] is [{_sizes(node)}]")
    if old.dtype != node.dtype:
        found.append(f"{old.dtype} is {node.dtype}")
    pairs = [(a, b) for a, b in zip(old.args, node.args, strict=False) if _scalar(a) != _scalar(b)]
    found += [f"{_said(b)} in place of {_said(a)}" if b is not None else f"without {_said(a)}" for a, b in pairs]
    return ", ".join(found)


def _scalar(arg: object) -> str | None:
    return None if isinstance(arg, Node) else repr(arg)


def _redirected(before: Graph, after: Graph, was: Mapping[Node, Node], removed: tuple[Node, ...]) -> dict[Node, str]:
    """Nodes that read something else than before, neither of it removed nor added."""
    gone = set(removed)
    found: dict[Node, str] = {}
    for node, old in was.items():
        reads = [was.get(a) for a in node.operands]
        if reads != list(old.operands) and None not in reads and gone.isdisjoint(old.operands):
            found[node] = "reads " + ", ".join(a.op for a in node.operands)
    return found


def _modules(before: Graph, after: Graph) -> dict[str, str]:
    found = {
        path: "run again in the backward pass" if how is True else "its attention is run again in the backward pass"
        for path, how in after.recomputed.items()
        if path not in before.recomputed and how
    }
    for path, loop in after.loops.items():
        old, new = (len(set(g.loops[path].kinds)) if path in g.loops else 0 for g in (before, after))
        if old != new:
            found[path] = f"{new} bodies for its {len(loop.kinds)} members, {old} before"
    return found


def _differ(old: object, new: object) -> bool:
    return _any_body(str(old)) != _any_body(str(new))


def _said(value: object) -> str:
    if isinstance(value, Node):
        return str(value.attrs.get("name", value.op)).rpartition(".")[2]
    return " ".join(map(str, value)) or "none" if isinstance(value, tuple) else str(value)


def _sizes(node: Node) -> str:
    return " ".join(map(str, node.shape))
