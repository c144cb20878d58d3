"""The comments of model.py as layouts: `batch@dp seq (3 heads@tp d_head)   partial(tp)`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from graphpar import notation
from graphpar.errors import GraphparError
from graphpar.runtime.shards import Dim, Dims, Factor, Segment

_MARK = re.compile(r"([A-Za-z0-9_.]+'?)@([A-Za-z0-9_+]+)")
_PENDING = re.compile(r"\s+partial\(([^)]*)\)")


@dataclass(frozen=True)
class Shape:
    """Named axes of a local value, which mesh axes cut them, and over which a sum is pending."""

    text: str
    axes: notation.Tensor
    cuts: Mapping[str, tuple[str, ...]]
    pending: tuple[str, ...]

    def used(self) -> set[str]:
        """The mesh axes along which ranks hold different things."""
        return {axis for axes in self.cuts.values() for axis in axes} | set(self.pending)


def read_shape(text: str) -> Shape | None:
    """The shape that a comment states, or None if it states none."""
    pending = _PENDING.search(text)
    named = _PENDING.sub("", text).strip()
    cuts = {item: tuple(axes.split("+")) for item, axes in _MARK.findall(named)}
    plain = _MARK.sub(r"\1", named)
    summed = tuple(axis.strip() for axis in pending[1].split(",")) if pending else ()
    if plain == "scalar":
        return Shape(text, (), {}, summed)
    try:
        return Shape(text, notation.parse_tensor(plain), cuts, summed)
    except GraphparError:
        return None


def layout(shape: Shape, local: Sequence[int], mesh: Mapping[str, int], sizes: Mapping[str, int]) -> Dims | None:
    """Which part of the whole each rank holds, with the whole sizes; None if the names do not say.

    `local` is the shape of the value on one rank, `sizes` the whole sizes of dimensions that are known.
    """
    if len(shape.axes) != len(local):
        return None
    dims = [_dim(axis, shape, n, mesh, sizes) for axis, n in zip(shape.axes, local, strict=True)]
    return None if any(dim is None for dim in dims) else tuple(dim for dim in dims if dim is not None)


def _dim(
    axis: notation.Axis, shape: Shape, local: int, mesh: Mapping[str, int], sizes: Mapping[str, int]
) -> Dim | None:
    items = [item for segment in axis for item in segment]
    if not any(str(item) in shape.cuts for item in items):
        return (((local, ()),),)
    if len(items) == 1:
        axes = shape.cuts[str(items[0])]
        return (((local * prod(mesh[a] for a in axes), axes),),)
    segments = tuple(tuple(_factor(item, shape, mesh, sizes) for item in segment) for segment in axis)
    missing = [factor for segment in segments for factor in segment if factor[0] == 0]
    if len(missing) == 1 and len(segments) == 1:
        segments = (_solved(segments[0], local, mesh),)
    whole = sum(prod(size // prod(mesh[a] for a in axes) for size, axes in segment) for segment in segments)
    return segments if whole == local else None


def _factor(item: notation.Item, shape: Shape, mesh: Mapping[str, int], sizes: Mapping[str, int]) -> Factor:
    """The size of a factor, padded to what its cuts divide; 0 if unknown."""
    axes = shape.cuts.get(str(item), ())
    size = item.name if isinstance(item.name, int) else sizes.get(item.name, 0)
    parts = prod(mesh[a] for a in axes)
    return -(-size // parts) * parts, axes


def _solved(segment: Segment, local: int, mesh: Mapping[str, int]) -> Segment:
    known = prod(size // prod(mesh[a] for a in axes) for size, axes in segment if size)
    return tuple((size or local // known * prod(mesh[a] for a in axes), axes) for size, axes in segment)
