"""Ops whose effect on axes depends on sizes and arguments: reshapes, cuts, joins, copies, attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphpar.ir.graph import Node, Size
from graphpar.names.atoms import Atoms, Product
from graphpar.names.bind import bind
from graphpar.names.signature import Axes, Signature
from graphpar.ops.experts import EXPERTS

Handler = Callable[[Node, Sequence[Axes], Atoms], Signature]


def _simple(operands: Sequence[Axes], result: Axes, whole: Sequence[int] = ()) -> Signature:
    return Signature(tuple(operands), result, frozenset(), frozenset(whole))


def reshape(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Row-major: factors are refilled into the new dimensions; what has no common factor is opaque, hence whole."""
    (own,) = operands
    kept = own[:1] if own and own[0] and own[0][-1] in atoms.rows else ()
    result = (*kept, *(atoms.axis(s) for s in node.shape[len(kept) :]))
    left, right = atoms.unify([a for axis in own for a in axis], [a for axis in result for a in axis])
    return _simple(operands, result, [*left, *right])


def expand(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Copies along dimensions of size one range over a fresh atom."""
    (own,) = operands
    lead = node.rank - len(own)
    result = tuple(
        own[i - lead] if i >= lead and own[i - lead] else atoms.axis(size) for i, size in enumerate(node.shape)
    )
    return _simple(operands, result)


def slice_(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Part of a dimension: a segment of it, every step-th index, or a cut that nothing is known of."""
    (own,) = operands
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    axis = atoms.resolve(own[dim])
    size = node.operands[0].shape[dim]
    part, whole = _part(axis, (start, stop, step), size, node.shape[dim], atoms)
    return _simple(operands, (*own[:dim], part, *own[dim + 1 :]), whole)


def _part(
    axis: list[int], bounds: tuple[object, ...], size: object, left: Size, atoms: Atoms
) -> tuple[Product, Sequence[int]]:
    start, stop, step = bounds
    if not all(isinstance(v, int) for v in (start, stop, step, size)):
        return _cut(axis, left, atoms)
    assert isinstance(start, int) and isinstance(stop, int) and isinstance(step, int) and isinstance(size, int)
    if step > 1:
        if len(range(start, stop, step)) * step != size:  # not one of every step
            return _cut(axis, left, atoms)
        if len(axis) > 1 and atoms.size[axis[-1]] == step:
            return tuple(axis[:-1]), axis[-1:]
        if len(axis) > 1:
            return _cut(axis, left, atoms)
        return (atoms.refine(axis[0], (size // step, step), (False, True))[0],), ()
    if len(axis) == 1:
        atoms.cut(axis[0], (start, stop))
        return _covered(atoms.segments(axis[0]), start, stop, atoms), axis
    return _block(axis, start, stop, atoms)


def _covered(segments: Sequence[Product], start: int, stop: int, atoms: Atoms) -> Product:
    inside: list[Product] = []
    offset = 0
    for segment in segments:
        size = atoms.total(segment)
        if start <= offset and offset + size <= stop:
            inside.append(segment)
        offset += size
    if len(inside) == 1:
        return inside[0]
    joined = atoms.new(stop - start)
    atoms.sum[joined] = tuple(inside)
    return (joined,)


def _block(axis: list[int], start: int, stop: int, atoms: Atoms) -> tuple[Product, Sequence[int]]:
    """A slice of a product at block boundaries cuts its leading factor."""
    inner = atoms.total(axis[1:])
    if start % inner == 0 and stop % inner == 0:
        if stop - start == inner:
            return tuple(axis[1:]), axis[:1]
        atoms.cut(axis[0], (start // inner, stop // inner))  # type: ignore[operator]
        return (*_covered(atoms.segments(axis[0]), start // inner, stop // inner, atoms), *axis[1:]), axis[:1]  # type: ignore[operator]
    return _cut(axis, stop - start, atoms)


def _cut(axis: list[int], size: Size, atoms: Atoms) -> tuple[Product, Sequence[int]]:
    """A part of which nothing is known: neither it nor what it is cut from may be sharded in this op."""
    part = atoms.axis(size)
    return part, [*axis, *part]


def piece(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """One of n equal pieces: the dimension is n times the piece."""
    (own,) = operands
    dim, count = node.attrs["dim"], node.attrs["count"]
    if isinstance(node.shape[dim], int) and node.shape[dim] == 1:
        return _simple(operands, (*own[:dim], (), *own[dim + 1 :]), atoms.resolve(own[dim]))
    rest = atoms.axis(node.shape[dim])
    pieces = (atoms.new(count, constant=True), *rest)
    left, right = atoms.unify(pieces, own[dim])
    return _simple(operands, (*own[:dim], rest, *own[dim + 1 :]), [*left, *right])


def segment(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """One of several parts of other sizes: the dimension is their sum."""
    (own,) = operands
    dim, sizes, index = node.attrs["dim"], node.attrs["sizes"], node.attrs["index"]
    start = sum(sizes[:index])
    part, whole = _part(atoms.resolve(own[dim]), (start, start + sizes[index], 1), sum(sizes), sizes[index], atoms)
    return _simple(operands, (*own[:dim], part, *own[dim + 1 :]), whole)


def cat(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Operands side by side: the sum of their axes."""
    dim = node.attrs["dim"]
    for other in operands[1:]:
        for i, axis in enumerate(other):
            if i != dim:
                atoms.unify(operands[0][i], axis)
    if not all(isinstance(o.shape[dim], int) for o in node.operands):
        axis, whole = _cut([a for o in operands for a in atoms.resolve(o[dim])], node.shape[dim], atoms)
        return _simple(operands, (*operands[0][:dim], axis, *operands[0][dim + 1 :]), whole)
    pieces = {tuple(atoms.resolve(o[dim])) for o in operands}
    if len(pieces) == 1 and len(operands) > 1:
        (part,) = pieces
        joined_axis = (atoms.new(len(operands), constant=True), *part)
        return _simple(operands, (*operands[0][:dim], joined_axis, *operands[0][dim + 1 :]))
    joined = atoms.new(node.shape[dim])
    parts = [o[dim] or (atoms.new(1),) for o in operands]
    atoms.sum[joined] = tuple(s for p in parts for s in (atoms.segments(p[0]) if len(p) == 1 else (p,)))
    return _simple(operands, (*operands[0][:dim], (joined,), *operands[0][dim + 1 :]), (joined,))


def pad(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """A padded dimension is another one; the operand's is needed whole."""
    (own,) = operands
    result = list(own)
    whole: list[int] = []
    widths = node.attrs["widths"]  # before and after, last dimension first
    for i, size in enumerate(node.shape):
        at = 2 * (node.rank - 1 - i)
        if any(width != 0 for width in widths[at : at + 2]):  # what is added in front may be taken off behind
            result[i], cut = _cut(atoms.resolve(own[i]), size, atoms)
            whole += cut
    return _simple(operands, tuple(result), whole)


def repeat_interleave(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Each index repeated in place: the axis times the copies."""
    (own,) = operands
    dim = node.attrs["dim"]
    grown = (*own[dim], atoms.new(node.attrs["repeats"]))
    return _simple(operands, (*own[:dim], grown, *own[dim + 1 :]))


def sdpa(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Attention: every query meets every key, so the keys' positions are a second use of seq, needed whole."""
    q, k, v = operands[:3]
    if node.attrs["gqa"] and q[-3] and len(atoms.resolve(k[-3])) > 0:
        groups = atoms.axis(node.operands[0].shape[-3] // node.operands[1].shape[-3])
        atoms.unify(q[-3], (*k[-3], *groups))
    elif not node.attrs["gqa"]:
        atoms.unify(q[-3], k[-3])
    atoms.unify(k[-3], v[-3])
    atoms.unify(k[-2], v[-2])
    for i in range(len(q) - 3):
        atoms.unify(q[i], k[i])
        atoms.unify(q[i], v[i])
    atoms.unify(q[-1], k[-1])
    own = atoms.resolve(q[-2])
    keys = tuple(atoms.twin(a) if a in own else a for a in atoms.resolve(k[-2]))
    views = [q, (*k[:-2], keys, k[-1]), (*v[:-2], keys, v[-1])]
    if len(operands) > 3:
        _mask(operands[3], (*q[:-2], tuple(own), keys), atoms)
        views.append(operands[3])
    whole = [*atoms.resolve(q[-1]), *keys]
    return Signature(tuple(views), (*q[:-1], v[-1]), frozenset(), frozenset(whole))


def _mask(mask: Axes, scores: Axes, atoms: Atoms) -> None:
    for own, axis in zip(reversed(mask), reversed(scores), strict=False):
        if own and axis:
            atoms.unify(own, axis)


SHAPES: dict[str, Handler] = {
    "reshape": reshape,
    "expand": expand,
    "slice": slice_,
    "piece": piece,
    "segment": segment,
    "cat": cat,
    "pad": pad,
    "repeat_interleave": repeat_interleave,
    "sdpa": sdpa,
    **EXPERTS,
}

LEAVES = frozenset({"input", "parameter", "buffer", "constant", "arange", "full"})


def signature(node: Node, operands: Sequence[Axes | None], atoms: Atoms, more: Mapping[str, str]) -> Signature | None:
    """How `node` uses axes; None without a rule. `operands` match `node.args`; `more` are rules of the spec."""
    if node.op in LEAVES:
        return Signature((), tuple(atoms.axis(s) for s in node.shape))
    if node.op in SHAPES:
        found = SHAPES[node.op](node, [o for o in operands if o is not None], atoms)
        views = iter(found.operands)
        return Signature(
            tuple(None if o is None else next(views) for o in operands), found.result, found.summed, found.whole
        )
    found = bind(node, operands, atoms, more)
    if node.op == "select" and found is not None:
        _picked(node, operands, atoms)
    return found


def _picked(node: Node, operands: Sequence[Axes | None], atoms: Atoms) -> None:
    """An axis of which single indices are picked is a pack: its atoms are constants."""
    own = operands[0]
    if own is not None and isinstance(node.operands[0].shape[node.attrs["dim"]], int):
        atoms.constant.update(atoms.resolve(own[node.attrs["dim"]]))
