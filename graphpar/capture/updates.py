"""Updates in place of a part of a value: from there on, the value is its parts side by side, one of them new.

So it is where the value is the program's own and nothing that was taken of it before the update is read behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from graphpar.ir.graph import Node, Size

VIEWS = frozenset({"reshape", "permute", "slice", "select", "unsqueeze", "expand", "piece", "segment", "detach"})
_GIVEN = frozenset({"input", "parameter", "buffer", "constant", "enter", "leave"})


def root(value: Any) -> Any:
    """What a value is a view of, as far as views go."""
    while isinstance(value, Node) and value.op in VIEWS:
        (value,) = value.operands[:1]
    return value


def owner(update: fx.Node, values: Mapping[fx.Node, Any]) -> fx.Node | None:
    """The value of which an update in place changes a slice; None where the update might change something else."""
    view = base = update.args[0]
    while isinstance(base, fx.Node) and str(base.target) == "aten.slice.Tensor":
        base = base.args[0]
    if (
        not isinstance(view, fx.Node)
        or not isinstance(base, fx.Node)
        or base.op != "call_function"
        or base.graph is not update.graph
    ):
        return None
    value = values[base]
    if not isinstance(value, Node) or value.op in _GIVEN | VIEWS or update.users or not _slices(values[view], value):
        return None
    behind = _behind(update)
    taken = [n for n, v in values.items() if n is not base and isinstance(v, Node) and root(v) is value]
    return None if any(not behind.isdisjoint(n.users) for n in taken) else base


def _behind(update: fx.Node) -> set[fx.Node]:
    found: set[fx.Node] = set()
    node = update.next
    while node.op != "root":
        found.add(node)
        node = node.next
    return found


def _slices(view: Any, base: Node) -> bool:
    """Whether a view is reached from its base by slices without gaps alone."""
    while view is not base:
        if view.op != "slice" or view.attrs["step"] != 1:
            return False
        (view,) = view.operands
    return True


def replaced(base: Node, view: Node, new: Node) -> Node:
    """The base with `new` where `view` was."""
    while view is not base:
        (outer,) = view.operands
        dim, start, stop = (view.attrs[k] for k in ("dim", "start", "stop"))
        parts = [_part(outer, dim, 0, start), new, _part(outer, dim, stop, outer.shape[dim])]
        kept = tuple(part for part in parts if part is not None)
        new = kept[0] if len(kept) == 1 else Node("cat", kept, {"dim": dim}, outer.shape, outer.dtype, new.origin)
        view = outer
    return new


def _part(x: Node, dim: int, start: Size, stop: Size) -> Node | None:
    """Some of a dimension, read from what it was joined of where that is one part."""
    if start == stop:
        return None
    if x.op == "cat" and x.attrs["dim"] == dim:
        at: Size = 0
        for part in x.operands:
            if at == start and at + part.shape[dim] == stop:
                return part
            at = at + part.shape[dim]
    shape = (*x.shape[:dim], stop - start, *x.shape[dim + 1 :])
    return Node("slice", (x,), {"dim": dim, "start": start, "stop": stop, "step": 1}, shape, x.dtype, x.origin)
