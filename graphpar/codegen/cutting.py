"""Expressions that cut, gather or pick: slices, parts of a dimension, collectives."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from graphpar.codegen.expression import ATOM, Scope, Text, behind, number
from graphpar.codegen.local import Cuts, blocks
from graphpar.codegen.routed import moved, moves_rows
from graphpar.ir.graph import Node, Size
from graphpar.ir.states import Shard


def slice_(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    whole = stop == x.shape[dim]
    if step == 1:
        start, stop = (_bound(b, x, dim, scope) for b in (start, stop))
    elif isinstance(start, int) and isinstance(size := x.shape[dim], int):
        whole = len(range(start, size, step)) == node.shape[dim]  # every step-th index to the end
    low = "" if start == 0 else _index(start, node, scope)
    high = "" if whole else _index(stop, node, scope)
    index = f"{low}:{high}" + (f":{step}" if step != 1 else "")
    lead = ["..."] if dim == x.rank - 1 and dim > 1 else [":"] * dim
    return Text(f"{scope.operand(x).inside(ATOM)}[{', '.join([*lead, index])}]")


def _index(bound: Any, node: Node, scope: Scope) -> str:
    return str(bound) if isinstance(bound, int) else scope.size(bound, of=node)


def _bound(bound: Any, x: Node, dim: int, scope: Scope) -> Any:
    """An offset along a global axis as one along the local axis."""
    if not isinstance(bound, int) or bound == 0:
        return bound
    axis, local = x.named[dim], scope.local(x)
    seen, here = 0, 0
    whole = Cuts(local.mesh, {})
    for segment in axis.segments:
        size, part = whole.product(segment), local.product(segment)
        if not isinstance(size, int) or not isinstance(part, int):
            return bound
        if bound <= seen + size:
            inside = bound - seen
            if inside * part % size:
                raise ValueError(f"an offset of {bound} is not on a boundary of what a rank has of {axis}")
            return here + inside * part // size
        seen, here = seen + size, here + part
    return bound


def select(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dim = node.attrs["dim"]
    index = node.attrs["index"]
    at = number(index) if isinstance(index, int) else scope.size(index, of=node)
    return Text(f"{scope.operand(x).inside(ATOM)}[{', '.join([':'] * dim + [at])}]")


def parts(node: Node, scope: Scope) -> Text:
    """One part of a cut dimension, written on its own."""
    return Text(f"{cut_all(node, scope)}[{node.attrs['index']}]")


def cut_all(node: Node, scope: Scope) -> str:
    """All parts of a cut dimension."""
    (x,) = node.operands
    dim = behind(node.attrs["dim"], x.rank)
    text = scope.operand(x).inside(ATOM)
    if node.op == "piece":
        return f"{text}.chunk({node.attrs['count']}, dim={dim})"
    axis, local = x.named[node.attrs["dim"]], scope.local(x)
    if len(axis.segments) == len(node.attrs["sizes"]):
        sizes = [local.product(s) for s in axis.segments]
    else:
        edges = [0, *(sum(node.attrs["sizes"][: i + 1]) for i in range(len(node.attrs["sizes"])))]
        at = [_bound(e, x, node.attrs["dim"], scope) for e in edges]
        sizes = [b - a for a, b in pairwise(at)]
    return f"{text}.split(({', '.join(scope.size(s, of=x) for s in sizes)}), dim={dim})"


def transition(node: Node, scope: Scope) -> Text:
    """A collective, or the local op that stands for it; the dimension and blocks come from the factor's place."""
    x = node.operands[0]
    if moves_rows(node):
        return moved(node, scope)
    name, axis = scope.need(node.op), scope.axis((node.attrs["axis"],))
    text = scope.operand(x)
    have, want = node.attrs["from"], (node.state or {})[node.attrs["axis"]]
    if node.op == "all_to_all":
        return _all_to_all(node, x, scope, name, axis)
    factor: int | None = getattr(have, "factor", getattr(want, "factor", None))
    if factor is None:
        return Text(f"{name}({text.text}, {axis})")
    before, after = scope.local(x), scope.local(node)
    dim = next(i for i, a in enumerate(x.named) if any(f.id == factor for f in a.factors))
    cut = before if hasattr(have, "factor") else after
    count = blocks(x.named[dim], factor, cut)
    where = f"dim={dim}" + (f", blocks={_count(count, node, scope)}" if count != 1 else "")
    whole = next(f for f in x.named[dim].factors if f.id == factor)
    parts = cut.parts(whole)
    if not isinstance(whole.size, int) or whole.size % parts == 0:
        return Text(f"{name}({text.text}, {axis}, {where})")
    return _padded(
        f"{name}({{}}, {axis}, {where})", text, x.rank, dim, (whole.size, before.parts(whole), after.parts(whole))
    )


def _padded(call: str, x: Text, rank: int, dim: int, sizes: tuple[int, int, int]) -> Text:
    """A cut of a dimension that does not divide is padded before, and what is whole again loses its padding."""
    size, before, after = sizes
    if before == 1:
        return Text(call.format(f"F.pad({x.text}, {_widths(rank, dim, size, after)})"))
    return Text(call.format(x.text) + (f".narrow({dim}, 0, {size})" if after == 1 else ""))


def _count(count: Size | tuple[Size, ...], node: Node, scope: Scope) -> str:
    if isinstance(count, tuple):
        return f"({', '.join(scope.size(c, of=node) for c in count)})"
    return scope.size(count, of=node)


def _all_to_all(node: Node, x: Node, scope: Scope, name: str, axis: str) -> Text:
    have, want = node.attrs["from"], (node.state or {})[node.attrs["axis"]]
    text, options, behind = scope.operand(x).text, [""], ""
    before, after = scope.local(x), scope.local(node)
    for word, state, local in (("split", want, after), ("concat", have, before)):
        if not isinstance(state, Shard):
            raise ValueError(f"an exchange from {have} to {want} is none")
        dim = next(i for i, a in enumerate(x.named) if any(f.id == state.factor for f in a.factors))
        whole = next(f for f in x.named[dim].factors if f.id == state.factor)
        count = blocks(x.named[dim], state.factor, local)
        options.append(f"{word}_dim={dim}")
        options += [f"{word}_blocks={_count(count, node, scope)}"] if count != 1 else []
        if isinstance(whole.size, int) and whole.size % local.parts(whole):
            if word == "split":
                text = f"F.pad({text}, {_widths(x.rank, dim, whole.size, local.parts(whole))})"
            else:
                behind = f".narrow({dim}, 0, {whole.size})"
    return Text(f"{name}({text}, {axis}{', '.join(options)}){behind}")


def _widths(rank: int, dim: int, size: int, parts: int) -> tuple[int, ...]:
    """What F.pad has to add for a dimension to divide."""
    return (*(0, 0) * (rank - 1 - dim), 0, -(-size // parts) * parts - size)
