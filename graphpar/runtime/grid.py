"""Where a rank sits in the mesh: rank numbers count through the axes, the last one fastest."""

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod


def coordinates(sizes: Mapping[str, int], rank: int) -> dict[str, int]:
    """The rank's index along each axis."""
    place: dict[str, int] = {}
    for name, size in reversed(list(sizes.items())):
        rank, place[name] = divmod(rank, size)
    return {name: place[name] for name in sizes}


def rank_at(sizes: Mapping[str, int], place: Mapping[str, int]) -> int:
    """The inverse of `coordinates`."""
    rank = 0
    for name, size in sizes.items():
        rank = rank * size + place[name]
    return rank


def groups(sizes: Mapping[str, int], names: Sequence[str]) -> list[tuple[int, ...]]:
    """Every group of ranks that differ only along `names`, which count outermost first, in one order for all ranks."""
    others = [name for name in sizes if name not in names]
    inside = [dict(zip(names, index, strict=True)) for index in product(*(range(sizes[name]) for name in names))]
    outside = [dict(zip(others, index, strict=True)) for index in product(*(range(sizes[name]) for name in others))]
    return [tuple(rank_at(sizes, fixed | moving) for moving in inside) for fixed in outside]


def spelled(sizes: Mapping[str, int]) -> str:
    """As in `dp=2 x tp=2`."""
    return " x ".join(f"{name}={size}" for name, size in sizes.items()) or "of one rank"


def count(sizes: Mapping[str, int]) -> int:
    """How many ranks the mesh has."""
    return prod(sizes.values())
