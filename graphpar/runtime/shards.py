"""Which part of a tensor a rank holds, and how to cut it out and put it back.

Each dim of the source tensor is described by segments (their sizes add up), each segment by factors (their sizes
multiply, row-major), each factor by the mesh axes that cut it, outermost first. A rank holds, in each factor, the block
at its coordinate. GPT-style packed `q k v` columns with the heads cut over tp:

    [[(3, ()), (heads, ("tp",)), (d_head, ())]]          one segment of three factors

If the sizes make more than the dim has, the rest is padding at its end: zeros on the ranks, never in a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphpar.runtime.grid import coordinates

Factor = tuple[int, tuple[str, ...]]  # size, mesh axes that cut it
Segment = tuple[Factor, ...]
Dim = tuple[Segment, ...]
Dims = tuple[Dim, ...]


@dataclass(frozen=True)
class Place:
    """The coordinates of one rank in a mesh."""

    sizes: Mapping[str, int]
    at: Mapping[str, int]

    @classmethod
    def of(cls, sizes: Mapping[str, int], rank: int) -> Place:
        """The place of `rank`."""
        return cls(sizes, coordinates(sizes, rank))

    def block(self, axes: Sequence[str]) -> tuple[int, int]:
        """(index, count) of this rank's block where `axes`, outermost first, cut one factor together."""
        index, count = 0, 1
        for axis in axes:
            index = index * self.sizes[axis] + self.at[axis]
            count *= self.sizes[axis]
        return index, count


def read_dims(document: Sequence[Sequence[Sequence[Sequence[Any]]]]) -> Dims:
    """The `dims` entry of plan.json as nested tuples."""
    return tuple(
        tuple(tuple((int(size), tuple(axes)) for size, axes in segment) for segment in dim) for dim in document
    )


def mesh_axes(dims: Dims) -> tuple[str, ...]:
    """The mesh axes that cut any factor, each once, in order of appearance."""
    return tuple(dict.fromkeys(axis for dim in dims for segment in dim for _, axes in segment for axis in axes))


def padded_shape(dims: Dims) -> tuple[int, ...]:
    """The full shape with padding."""
    return tuple(sum(prod(size for size, _ in segment) for segment in dim) for dim in dims)


def local_shape(dims: Dims, place: Place) -> tuple[int, ...]:
    """The shape of one rank's part."""
    return tuple(sum(prod(_local(segment, place)) for segment in dim) for dim in dims)


def cut(full: Tensor, dims: Dims, place: Place) -> Tensor:
    """This rank's part of `full`, always a new tensor; padding is zeros."""
    local = full.new_empty(local_shape(dims, place))
    for theirs, ours in _pieces(_pad(full, dims), local, dims, place):
        ours.copy_(theirs)
    return local


def paste(full: Tensor, local: Tensor, dims: Dims, place: Place) -> None:
    """Write one rank's part into `full`, a tensor of the padded shape: the inverse of `cut`."""
    for theirs, ours in _pieces(full, local, dims, place):
        theirs.copy_(ours)


def join(parts: Iterator[tuple[Place, Tensor]], shape: Sequence[int], dims: Dims) -> Tensor:
    """The full tensor of the parts that the ranks hold, without its padding."""
    full: Tensor | None = None
    for place, local in parts:
        if full is None:
            full = local.new_zeros(padded_shape(dims))
        paste(full, local, dims, place)
    if full is None:
        raise ValueError("nothing to join")
    return full[tuple(slice(size) for size in shape)]


def _local(segment: Segment, place: Place) -> list[int]:
    sizes: list[int] = []
    for size, axes in segment:
        _, count = place.block(axes)
        if size % count:
            raise ValueError(f"a factor of {size} does not divide by {' x '.join(axes)} = {count}")
        sizes.append(size // count)
    return sizes


def _pad(full: Tensor, dims: Dims) -> Tensor:
    missing = [want - have for want, have in zip(padded_shape(dims), full.shape, strict=True)]
    if not any(missing):
        return full
    # F.pad counts dims from the last one, as (before, after) pairs
    return F.pad(full, [side for extra in reversed(missing) for side in (0, extra)])


def _pieces(full: Tensor, local: Tensor, dims: Dims, place: Place) -> Iterator[tuple[Tensor, Tensor]]:
    """Views of the same shape into `full` and `local`, one pair per combination of segments."""
    for segments in product(*(_offsets(dim, place) for dim in dims)):
        theirs, ours = full, local
        for dim, (start, local_start, segment) in enumerate(segments):
            sizes = _local(segment, place)
            theirs = theirs.narrow(dim, start, prod(size for size, _ in segment))
            ours = ours.narrow(dim, local_start, prod(sizes))
        yield _split(theirs, segments, place, whole=True), _split(ours, segments, place, whole=False)


def _offsets(dim: Dim, place: Place) -> list[tuple[int, int, Segment]]:
    """Each segment with its start in the full and in the local dim."""
    found: list[tuple[int, int, Segment]] = []
    start = local_start = 0
    for segment in dim:
        found.append((start, local_start, segment))
        start += prod(size for size, _ in segment)
        local_start += prod(_local(segment, place))
    return found


def _split(tensor: Tensor, segments: Sequence[tuple[int, int, Segment]], place: Place, *, whole: bool) -> Tensor:
    """Give every factor a dim of its own; of a whole tensor, keep this rank's block of each."""
    # last dim first, so that the dims still to be split keep their numbers
    for dim in reversed(range(len(segments))):
        segment = segments[dim][2]
        tensor = tensor.unflatten(dim, [size for size, _ in segment] if whole else _local(segment, place))
        if whole:
            for offset, (size, axes) in enumerate(segment):
                index, count = place.block(axes)
                tensor = tensor.narrow(dim + offset, index * (size // count), size // count)
    return tensor


def block(tensor: Tensor, axes: Sequence[str], dim: int, place: Place) -> Tensor:
    """This rank's contiguous block of `dim`, cut by `axes` together. A view."""
    index, count = place.block(axes)
    size, rest = divmod(tensor.shape[dim], count)
    if rest:
        raise ValueError(f"{tensor.shape[dim]} does not divide by {' x '.join(axes)} = {count}")
    return torch.narrow(tensor, dim, index * size, size)
