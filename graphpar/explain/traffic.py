"""The collectives of one training step, from a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpar.codegen.plan import backward, flat
from graphpar.explain.gradients import sums
from graphpar.explain.memory import width
from graphpar.explain.places import microbatches, places
from graphpar.explain.sizes import number


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind over one axis in one phase: how many, and the bytes that a rank hands to all of them."""

    phase: str  # forward, backward, or gradients: the sums after the last backward
    kind: str
    axis: str
    count: int
    bytes: int


@dataclass(frozen=True)
class Tokens:
    """The size of a step's batch, over all ranks and all microbatches of a pipeline; `why` says where it is from."""

    batch: int
    seq: int
    why: str


def tokens(plan: Mapping[str, Any], given: Mapping[str, int]) -> Tokens:
    """The sizes that the spec's inputs give, else those that train.py takes by itself."""
    if "batch" in given and "seq" in given:
        return Tokens(given["batch"], given["seq"], "from the spec")
    cut = plan["inputs"][0]["cut"].get("0", ()) if plan["inputs"] else ()
    batch = 4 * microbatches(plan) * prod(plan["mesh"][axis] for axis in cut)
    return Tokens(batch, min(plan["max_seq"] or 128, 1024), "what train.py takes by itself")


def traffic(plan: Mapping[str, Any], size: Tokens) -> tuple[Traffic, ...]:
    """All collectives of a step but those of single numbers: the label count, the loss, the gradient norm.

    In a pipeline they are those of the rank with the most bytes.
    """
    return max((_of_rank(place, size) for place in places(plan)), key=lambda found: sum(t.bytes for t in found))


def messages(place: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """What a rank takes part in for one microbatch, in order: the phase, the direction of the entry, the entry."""
    entries = place["collectives"]
    ran = [("forward", "forward", entry) for entry in flat(entries)]
    ran += [("backward", direction, entry) for direction, entry in backward(entries)]
    return (message for message in ran if message[2][message[1]])


def _of_rank(plan: Mapping[str, Any], size: Tokens) -> tuple[Traffic, ...]:
    found: dict[tuple[str, str, str], list[int]] = {}
    times = microbatches(plan)
    for phase, direction, entry in messages(plan):
        sent = number(entry[f"{direction}_elements"], size.batch // times, size.seq) * width(entry["dtype"])
        found.setdefault((phase, entry[direction], entry["axis"]), []).append(sent)
    moved = (Traffic(*k, times * len(sent), times * sum(sent)) for k, sent in sorted(found.items(), key=_order))
    return (*moved, *gradient_sums(plan))


def _order(entry: tuple[tuple[str, str, str], object]) -> tuple[bool, str, str]:
    (phase, kind, axis), _ = entry
    return phase != "forward", axis, kind


def gradient_sums(plan: Mapping[str, Any]) -> Iterable[Traffic]:
    """The sums of gradients that a rank takes part in, in the buckets of the runtime."""
    return [Traffic("gradients", "all_reduce", " ".join(s.axes), s.count, s.bytes) for s in sums(plan)]
