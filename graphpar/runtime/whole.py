"""Whole tensors from the parts that the ranks hold, and whether the ranks agree where they hold the same part."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Stored
from graphpar.runtime.shards import Place, join

_NONE = torch.iinfo(torch.int64).min  # less than any other in a maximum
_CHUNK = 1 << 22  # elements summed up together: bounds the memory for their 64-bit words


class ReplicaError(RuntimeError):
    """Ranks that must hold equal values hold different ones."""


def here(mesh: Mesh) -> Place:
    """This rank's place."""
    return Place(mesh.sizes, mesh.coordinates)


def gather_full(local: Tensor | None, stored: Stored, mesh: Mesh, dtype: torch.dtype | None = None) -> Tensor:
    """The whole tensor, without padding, on every rank. All ranks must call it.

    A rank whose stages hold no part of it brings None, and the dtype if it is not the plan's.
    """
    if stored.owners is None or stored.owners.coordinates == tuple(range(mesh.sizes[stored.owners.axis])):
        assert local is not None
        return _joined(local, stored, mesh)
    if local is None:
        whole = torch.empty(stored.shape, dtype=dtype or stored.dtype, device=mesh.device)
    else:
        whole = _joined(local, stored, mesh)
    return mesh[stored.owners.axis].broadcast(whole, stored.owners.coordinates[0])


def _joined(local: Tensor, stored: Stored, mesh: Mesh) -> Tensor:
    axes = tuple(name for name in mesh.sizes if name in stored.axes)
    parts = mesh.axis(axes).all_gather(local.detach().unsqueeze(0), 0)
    sizes = {name: mesh.sizes[name] for name in axes}
    places = (Place(mesh.sizes, {**mesh.coordinates, **Place.of(sizes, rank).at}) for rank in range(len(parts)))
    return join(zip(places, parts, strict=True), stored.shape, stored.dims)


def require_equal_replicas(held: Mapping[str, Tensor], stored: Mapping[str, Stored], mesh: Mesh) -> None:
    """Raise ReplicaError, on every rank and with the names, unless replicas agree bit for bit. All ranks call it.

    `stored` is the same on all ranks; of a pipeline, `held` is what the stages of this one hold of it.
    """
    names = list(stored)
    differs = torch.zeros(len(names), dtype=torch.int64, device=mesh.device)
    by_axes: dict[tuple[str, ...], list[int]] = {}
    for index, name in enumerate(names):
        by_axes.setdefault(tuple(axis for axis in mesh.sizes if axis not in stored[name].axes), []).append(index)
    for axes, indices in by_axes.items():
        # the largest of the complements is the complement of the smallest
        both = torch.stack([_both(held.get(names[index]), mesh.device) for index in indices], 1)
        largest, least = mesh.axis(axes).all_reduce(both, "max").unbind()
        differs[indices] = (largest != ~least).to(torch.int64)
    differs = mesh.world.all_reduce(differs, "max")
    if differs.any():
        wrong = [name for name, bad in zip(names, differs.tolist(), strict=True) if bad]
        raise ReplicaError(f"ranks that hold the same part of {', '.join(wrong)} hold different values")


def _both(tensor: Tensor | None, device: torch.device) -> Tensor:
    """A checksum and its complement, [2]; of what this rank does not hold, what changes no maximum."""
    if tensor is None:
        return torch.full((2,), _NONE, device=device)
    found = checksum(tensor)
    return torch.stack([found, ~found])


def held_dtypes(held: Mapping[str, Tensor], stored: Mapping[str, Stored], mesh: Mesh) -> dict[str, torch.dtype]:
    """The dtype of every tensor, whichever ranks hold it. All ranks of a mesh with a pipeline must call it."""
    names, dtypes = list(stored), _dtypes()
    if all(entry.owners is None for entry in stored.values()):
        return {name: held[name].dtype for name in names}
    codes = [dtypes.index(held[name].dtype) if name in held else -1 for name in names]
    found = mesh.world.all_reduce(torch.tensor(codes, device=mesh.device), "max").tolist()
    return {name: dtypes[code] for name, code in zip(names, found, strict=True)}


def _dtypes() -> list[torch.dtype]:
    """All that torch has, in one order."""
    return sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)


def checksum(tensor: Tensor) -> Tensor:
    """A 64-bit sum over the tensor's bits, each weighted by its position; int64, a scalar."""
    words = tensor.detach().contiguous().flatten().view(_integers(tensor))
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start in range(0, words.numel(), _CHUNK):
        part = words[start : start + _CHUNK].to(torch.int64)
        position = torch.arange(start, start + part.numel(), device=tensor.device)
        total += (part * (2 * position + 1)).sum()  # odd weights: no bit is ever multiplied away
    return total


def _integers(tensor: Tensor) -> torch.dtype:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return torch.uint8
    return {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
