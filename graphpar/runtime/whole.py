"""Whole tensors from the parts that the ranks hold, and whether the ranks agree where they hold the same part."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Stored
from graphpar.runtime.shards import Place, join

_CHUNK = 1 << 22  # elements summed up together: bounds the memory for their 64-bit words


class ReplicaError(RuntimeError):
    """Ranks that must hold equal values hold different ones."""


def here(mesh: Mesh) -> Place:
    """This rank's place."""
    return Place(mesh.sizes, mesh.coordinates)


def gather_full(local: Tensor, stored: Stored, mesh: Mesh) -> Tensor:
    """The whole tensor, without padding, on every rank. All ranks must call it."""
    axes = tuple(name for name in mesh.sizes if name in stored.axes)
    parts = mesh.axis(axes).all_gather(local.detach().unsqueeze(0), 0)
    sizes = {name: mesh.sizes[name] for name in axes}
    places = (Place(mesh.sizes, {**mesh.coordinates, **Place.of(sizes, rank).at}) for rank in range(len(parts)))
    return join(zip(places, parts, strict=True), stored.shape, stored.dims)


def require_equal_replicas(held: Mapping[str, Tensor], stored: Mapping[str, Stored], mesh: Mesh) -> None:
    """Raise ReplicaError, on every rank and with the names, unless replicas agree bit for bit. All ranks call it."""
    names = list(stored)
    differs = torch.zeros(len(names), dtype=torch.int64, device=mesh.device)
    by_axes: dict[tuple[str, ...], list[int]] = {}
    for index, name in enumerate(names):
        by_axes.setdefault(tuple(axis for axis in mesh.sizes if axis not in stored[name].axes), []).append(index)
    for axes, indices in by_axes.items():
        sums = torch.stack([checksum(held[names[index]]) for index in indices])
        # the largest of the complements is the complement of the smallest
        largest, least = mesh.axis(axes).all_reduce(torch.stack([sums, ~sums]), "max").unbind()
        differs[indices] = (largest != ~least).to(torch.int64)
    differs = mesh.world.all_reduce(differs, "max")
    if differs.any():
        wrong = [name for name, bad in zip(names, differs.tolist(), strict=True) if bad]
        raise ReplicaError(f"ranks that hold the same part of {', '.join(wrong)} hold different values")


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
