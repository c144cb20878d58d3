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
    """The largest difference over `scale`. Equal infinities do not differ; NaN differs from everything."""
    if found.shape != wanted.shape:
        return float("inf")
    if found.numel() == 0 or torch.equal(found, wanted):
        return 0.0
    difference = (found.double() - wanted.double()).abs().masked_fill(found == wanted, 0).max().item()
    return difference / scale if scale > 0 else float("inf")


def errors(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, float]:
    """The relative difference of each tensor; infinite for a name that only one of the two has."""
    largest = max((size(tensor) for tensor in wanted.values()), default=0.0)
    return {
        name: relative(found[name], wanted[name], max(size(wanted[name]), FLOOR * largest))
        if name in found and name in wanted
        else float("inf")
        for name in dict.fromkeys((*wanted, *found))
    }


def worst(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> Worst:
    """The largest relative difference of tensors of the same names."""
    result = Worst(0.0, "")
    for name, error in errors(found, wanted).items():
        result = larger(result, Worst(error, name))
    return result


def larger(a: Worst, b: Worst) -> Worst:
    """The one with the larger difference; NaN is the largest."""
    return b if not b.error <= a.error else a


def size(tensor: Tensor) -> float:
    """The magnitude of the largest element that is finite."""
    tensor = tensor.detach().byte() if tensor.dtype == torch.bool else tensor.detach()
    return tensor.abs().nan_to_num(0, 0, 0).max().item() if tensor.numel() else 0.0


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
