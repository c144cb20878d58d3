"""Gradients that are summed after the last backward: over which axes, in how many buckets, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpar.explain.memory import width
from graphpar.explain.places import places
from graphpar.runtime.buckets import Gradient, buckets

Plan = Mapping[str, Any]
LEAST = 4  # bytes per element: sums are taken in float32 at least


@dataclass(frozen=True)
class Sums:
    """The gradients that are summed over the same axes on a rank: buckets, bytes, and whose they are."""

    axes: tuple[str, ...]
    count: int
    bytes: int
    names: tuple[str, ...]
    place: str = ""  # of a pipeline: the ranks along its axis that do so


def sums(plan: Plan) -> list[Sums]:
    """The sums on one rank, in the buckets of the runtime."""
    found: dict[tuple[str, ...], list[list[Gradient]]] = {}
    for bucket in buckets(_gradients(plan)):
        found.setdefault(bucket[0].axes, []).append(bucket)
    return [
        Sums(axes, len(made), sum(g.bytes for bucket in made for g in bucket), _in_order(plan, made))
        for axes, made in found.items()
    ]


def sums_by_place(plan: Plan) -> list[Sums]:
    """The sums on the ranks at each place of a pipeline; without one, those on each rank."""
    pipeline = plan.get("pipeline")
    if not pipeline:
        return sums(plan)
    ranks = sorted({stage["rank"] for stage in pipeline["stages"]})
    return [
        Sums(found.axes, found.count, found.bytes, found.names, f"{pipeline['axis']} {rank}")
        for rank, own in zip(ranks, places(plan), strict=True)
        for found in sums(own)
    ]


def shared(plan: Plan) -> list[Sums]:
    """The sums over the ranks of a pipeline whose stages hold the same parameter."""
    pipeline = plan.get("pipeline")
    if not pipeline:
        return []
    found: dict[tuple[tuple[int, ...], str], list[str]] = {}
    for name, owners in pipeline["shared"].items():
        found.setdefault((tuple(owners), plan["parameters"][name]["dtype"]), []).append(name)
    return [
        Sums(
            (pipeline["axis"],),
            1,
            sum(_bytes(plan["parameters"][name]) for name in names),
            tuple(names),
            f"{pipeline['axis']} {', '.join(map(str, owners))}",
        )
        for (owners, _), names in found.items()
    ]


def _gradients(plan: Plan) -> list[Gradient]:
    live = {axis for axis, ranks in plan["mesh"].items() if ranks > 1}
    return [
        Gradient(name, tuple(a for a in p["grad_sum"] if a in live), p["dtype"], _bytes(p))
        for name, p in plan["parameters"].items()
        if p["trainable"]
    ]


def _bytes(parameter: Mapping[str, Any]) -> int:
    return prod(parameter["local_shape"]) * max(width(parameter["dtype"]), LEAST)


def _in_order(plan: Plan, made: Sequence[Sequence[Gradient]]) -> tuple[str, ...]:
    names = {gradient.name for bucket in made for gradient in bucket}
    return tuple(name for name in plan["parameters"] if name in names)
