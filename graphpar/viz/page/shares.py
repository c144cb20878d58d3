"""Which part of a tensor each rank of the mesh holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import torch

from graphpar.runtime.grid import count
from graphpar.runtime.shards import Dim, Place, cut, mesh_axes, padded_shape, read_dims

FEW = 3  # ranges that are written out


def shares(entry: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """The different parts, each as one text per dimension, and the part of every rank; None where it has none."""
    mesh, dims = plan["mesh"], read_dims(entry["dims"])
    axes = mesh_axes(dims)
    parts: dict[tuple[str, ...], int] = {}
    of: list[int | None] = []
    for rank in range(count(mesh)):
        place = Place.of(mesh, rank)
        if not _holds(entry, plan, place):
            of.append(None)
            continue
        at = tuple((axis, mesh[axis], place.at[axis]) for axis in axes)
        part = tuple(_held(dim, size, at) for dim, size in zip(dims, entry["shape"], strict=True))
        of.append(parts.setdefault(part, len(parts)))
    return {"parts": [list(part) for part in parts], "of": of}


def _holds(entry: Mapping[str, Any], plan: Mapping[str, Any], place: Place) -> bool:
    """Whether a rank's stages have the tensor."""
    pipeline = plan.get("pipeline")
    if not pipeline:
        return True
    return any(pipeline["stages"][s]["rank"] == place.at[pipeline["axis"]] for s in entry["stages"])


@cache
def _held(dim: Dim, size: int, at: tuple[tuple[str, int, int], ...]) -> str:
    """The indices of one dimension that the rank at these coordinates holds: `0:64`, `all 64`."""
    place = Place({axis: ranks for axis, ranks, _ in at}, {axis: index for axis, _, index in at})
    (whole,) = padded_shape((dim,))
    indices = cut(torch.arange(whole), (dim,), place)
    real = indices[indices < size]
    padding = f" and {len(indices) - len(real)} of padding" if len(real) < len(indices) else ""
    if len(real) == size:
        return f"all {size}{padding}"
    return f"{_spelled(_ranges(real.tolist()))}{padding}"


def _ranges(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Rising indices as ranges without their ends."""
    found: list[tuple[int, int]] = []
    for index in indices:
        if found and found[-1][1] == index:
            found[-1] = (found[-1][0], index + 1)
        else:
            found.append((index, index + 1))
    return found


def _spelled(ranges: Sequence[tuple[int, int]]) -> str:
    """`0:16, 32:48`, and `0:16, 32:48, … 480:496 (16 ranges)` of many."""
    words = [f"{start}:{stop}" for start, stop in ranges]
    if len(words) <= FEW:
        return ", ".join(words) or "nothing"
    return f"{words[0]}, {words[1]}, … {words[-1]} ({len(words)} ranges)"
