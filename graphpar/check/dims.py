"""One dimension of a tensor, as it lies on the mesh.

A dimension is a sum of segments, a segment a product of factors, outermost first; a factor has its local size and the
mesh axes that cut it, outermost first. `(3 heads@tp d_head)` with two heads of 16 on each rank is one segment of the
factors (3), (2, tp) and (16). Along a factor that is `same` all elements are equal, as `expand` makes them: it may be
taken for cut over any axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from math import prod
from typing import NamedTuple


class Wrong(Exception):
    """What a statement of the program does is not what one device does."""


class Factor(NamedTuple):
    """A factor of a dimension: its local size, the mesh axes that cut it, and whether its elements are all equal."""

    size: int
    axes: tuple[str, ...] = ()
    same: bool = False


Segment = tuple[Factor, ...]
Dim = tuple[Segment, ...]

ONE: Dim = ((Factor(1),),)


def whole(size: int) -> Dim:
    """A dimension that nothing cuts."""
    return ((Factor(size),),)


def repeated(size: int) -> Dim:
    """A dimension along which all elements are equal."""
    return ((Factor(size, same=True),),)


def dimension(segments: Iterable[Iterable[Factor]]) -> Dim:
    """A dimension of segments, without factors of one element that nothing cuts; what nothing cuts is one segment."""
    found: list[Segment] = []
    for segment in (tuple(f for f in s if f != Factor(1)) or (Factor(1),) for s in segments):
        if found and not cut_by((found[-1],)) and not cut_by((segment,)):
            found[-1] = (Factor(length((found[-1], segment))),)
        elif length((segment,)):
            found.append(segment)
    return tuple(found) or whole(0)


def length(dim: Dim) -> int:
    """The local size."""
    return sum(prod(f.size for f in segment) for segment in dim)


def cut_by(dim: Dim) -> frozenset[str]:
    """The mesh axes that cut it."""
    return frozenset(axis for segment in dim for factor in segment for axis in factor.axes)


def cut_by_any(dims: Iterable[Dim]) -> frozenset[str]:
    """The mesh axes that cut any of them."""
    return frozenset().union(*(cut_by(dim) for dim in dims))


def single(dim: Dim) -> bool:
    """Whether it has one element that nothing cuts, and so goes with any dimension."""
    return length(dim) == 1 and not cut_by(dim)


# Which dimensions are equal


def agree(a: Dim, b: Dim) -> Dim | None:
    """The dimension that both are, if on every rank they hold the same elements of the whole."""
    if _form(a) == _form(b):
        return b if _has_same(a) else a
    if _has_same(a) and _adopts(a, b):
        return b
    if _has_same(b) and _adopts(b, a):
        return a
    return None


def _has_same(dim: Dim) -> bool:
    return any(f.same for segment in dim for f in segment)


def _form(dim: Dim) -> Dim:
    """The one form that equal dimensions share."""
    found: list[Segment] = []
    for segment in map(_segment_form, dim):
        if found and (both := _joined(found[-1], segment)):
            found[-1] = both
        else:
            found.append(segment)
    return tuple(found)


def _segment_form(factors: Iterable[Factor]) -> Segment:
    """What follows a factor that is cut, and is not cut itself, is one block with it."""
    found: list[Factor] = []
    for size, axes, _ in factors:
        if found and not axes:
            found[-1] = Factor(found[-1].size * size, found[-1].axes)
        elif found and found[-1].size == 1:
            found[-1] = Factor(size, found[-1].axes + axes)
        else:
            found.append(Factor(size, axes))
    return tuple(found)


def _joined(a: Segment, b: Segment) -> Segment | None:
    """Two segments as one, if they repeat the same cut block or are not cut: (2 x@tp) + x@tp = (3 x@tp)."""
    (m, x), (n, y) = _leading(a), _leading(b)
    return (Factor(m + n), *x) if x == y else None


def _leading(segment: Segment) -> tuple[int, Segment]:
    """How often a segment repeats its first cut block, and that block; all of a segment that is not cut."""
    before = list(takewhile(lambda f: not f.axes, segment))
    return prod(f.size for f in before), segment[len(before) :]


def _adopts(pattern: Dim, other: Dim) -> bool:
    """Whether a dimension with `same` factors is another one, whose cuts those factors take over."""
    if len(pattern) > 1 or len(other) > 1:
        return False
    left = [factor for segment in other for factor in segment]
    for factor in (f for segment in pattern for f in segment):
        taken = _without(left, factor)
        if taken is None:
            return False
        left = taken
    return all(f.size == 1 and not f.axes for f in left)


def _without(factors: list[Factor], factor: Factor) -> list[Factor] | None:
    """What is left of factors after one that leads them, or None."""
    if factor.same:
        try:
            return _take(factors, factor.size, other=(tuple(factors),))[1]
        except Wrong:
            return None
    size, axes, left = factor.size, factor.axes, list(factors)
    while left and (size > 1 or axes):
        first = left.pop(0)
        if first.axes != axes[: len(first.axes)]:
            return None
        axes = axes[len(first.axes) :]
        if first.size and size % first.size == 0:
            size //= first.size
        elif first.size % size == 0 and not axes:
            left.insert(0, Factor(first.size // size))
            size = 1
        else:
            return None
    return left if size == 1 and not axes else None


# Splitting and joining


def split(dim: Dim, sizes: list[int]) -> list[Dim]:
    """The dimensions of these local sizes, outermost first, that a dimension is the product of."""
    if len(dim) > 1:
        if [n for n in sizes if n != 1] == [length(dim)]:
            return [ONE if n == 1 else dim for n in sizes]
        raise Wrong(f"{spell(dim)} is a sum of parts, which cannot be split into {' x '.join(map(str, sizes))}")
    left = [factor for segment in dim for factor in segment]
    found: list[Dim] = []
    for i, size in enumerate(sizes):
        taken, left = _take(left, size, dim, more=sizes[i + 1 : i + 2] != [1])
        found.append(dimension([taken]))
    return found


def _take(factors: list[Factor], size: int, other: Dim, *, more: bool = True) -> tuple[list[Factor], list[Factor]]:
    """The leading factors that make up `size`, with `more` also those after them of one element; and the rest."""
    taken: list[Factor] = []
    left = list(factors)
    if size == 1 and left and left[0].size > 1:
        return [Factor(1)], left
    while left and (size > 1 or not taken or (more and left[0].size == 1 and len(left) > 1)):
        factor = left.pop(0)
        if factor.size and size % factor.size == 0:
            taken.append(factor)
            size //= factor.size
        elif factor.size % size == 0:
            taken.append(factor._replace(size=size))
            left.insert(0, Factor(factor.size // size, same=factor.same))
            size = 1
        else:
            raise Wrong(f"{spell(other)} does not split there")
    return taken or [Factor(1)], left


def product(dims: Sequence[Dim]) -> Dim:
    """The dimension that dims make when they are flattened."""
    if any(len(dim) > 1 for dim in dims):
        rest = [dim for dim in dims if not single(dim)]
        if len(rest) == 1:
            return rest[0]
        raise Wrong(f"{' and '.join(map(spell, rest))} cannot be one dimension")
    return dimension([[factor for dim in dims for segment in dim for factor in segment]])


def part(dim: Dim, start: int, stop: int) -> Dim:
    """The elements from start to stop, which must be the same ones of the whole on every rank."""
    found: list[Segment] = []
    at = 0
    for segment in dim:
        size = length((segment,))
        first, last = max(start - at, 0), min(stop - at, size)
        if first < last:
            found.append(segment if last - first == size else _part(segment, first, last, dim))
        at += size
    return dimension(found) if found else whole(0)


def _part(segment: Segment, start: int, stop: int, dim: Dim) -> Segment:
    count, block = _leading(segment)
    size = length((block,))
    if start % size or stop % size or not count:
        raise Wrong(f"elements {start} to {stop} of {spell(dim)} are other elements of the whole on each rank")
    return (Factor((stop - start) // size), *block)


def spell(dim: Dim) -> str:
    """As the comments of a program write it, with local sizes."""
    segments = [" ".join(f"{f.size}{''.join('@' + a for a in f.axes)}" for f in segment) for segment in dim]
    text = " + ".join(segments)
    return f"({text})" if " " in text else text


def spell_all(dims: Sequence[Dim]) -> str:
    """All dimensions of a tensor."""
    return " ".join(map(spell, dims)) or "scalar"
