"""Comparing tensors: relative to their own size, with a floor where rounding is all there is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpar.runtime.plan import Stored
from graphpar.runtime.shards import Place, cut, padded_shape, paste
from graphpar.verify.report import Check

EXACT = 1e-9  # in float64
FLOOR = 1e-5  # of the largest element of any tensor in the group: below that a gradient is a sum of cancelling terms


@dataclass(frozen=True)
class Worst:
    """The largest relative difference in a group of tensors, and whose it is."""

    error: float
    name: str

    def check(self, title: str, compared: str, limit: float = EXACT) -> Check:
        """The outcome as a check."""
        fine = self.error <= limit  # NaN is not
        outcome = "failed" if not fine else "exact" if self.error == 0 else "ok"
        return Check(title, outcome, compared, self.error, limit, self.name)


def relative(found: Tensor, wanted: Tensor, scale: float) -> float:
    """The largest difference over `scale`; infinite where exactly one of the two is finite."""
    if found.shape != wanted.shape:
        return float("inf")
    if found.numel() == 0 or torch.equal(found, wanted):
        return 0.0
    difference = (found.double() - wanted.double()).abs().max().item()
    return difference / scale if scale > 0 else float("inf")


def worst(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], floor: float = FLOOR) -> Worst:
    """Compare tensors of the same names."""
    missing = [name for name in wanted if name not in found] + [name for name in found if name not in wanted]
    if missing:
        return Worst(float("inf"), f"only one of the two has {', '.join(missing[:4])}")
    largest = max((size(tensor) for tensor in wanted.values()), default=0.0)
    found_worst = Worst(0.0, "")
    for name, tensor in wanted.items():
        error = relative(found[name], tensor, max(size(tensor), floor * largest))
        if not error <= found_worst.error:
            found_worst = Worst(error, name)
    return found_worst


def larger(a: Worst, b: Worst) -> Worst:
    """The one with the larger difference."""
    return a if not a.error <= b.error else b


def size(tensor: Tensor) -> float:
    """The magnitude of the largest element."""
    return tensor.detach().abs().max().item() if tensor.numel() else 0.0


def scalars(found: Iterable[Tensor], wanted: Tensor) -> float:
    """The largest relative difference of some numbers from the wanted one."""
    return max(relative(value, wanted, size(wanted)) for value in found)


@dataclass(frozen=True)
class Gathered:
    """A tensor put together from the parts of all ranks."""

    full: Tensor
    unequal: tuple[int, ...]  # the ranks that hold other bits than a later rank with the same part
    padding: float  # the largest element of the padding


def gather(parts: list[Tensor], stored: Stored, places: list[Place]) -> Gathered:
    """Put parts together. Where several ranks hold the same part, the last one counts."""
    full = parts[0].new_zeros(padded_shape(stored.dims))
    for place, part in zip(places, parts, strict=True):
        paste(full, part, stored.dims, place)
    again = (cut(full, stored.dims, place) for place in places)
    unequal = tuple(
        rank for rank, (part, same) in enumerate(zip(parts, again, strict=True)) if not _same_bits(part, same)
    )
    inside = full[tuple(slice(n) for n in stored.shape)]
    rest = full.clone()
    rest[tuple(slice(n) for n in stored.shape)] = 0
    return Gathered(inside, unequal, size(rest))


def _same_bits(a: Tensor, b: Tensor) -> bool:
    return torch.equal(a, b) or torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
