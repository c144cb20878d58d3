"""A pipeline in lines for a terminal: its schedule, its stages, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from graphpar.pipeline.cutting import Cutting

MANY = 16  # more stages than these are told together where they are alike


def describe(cutting: Cutting) -> list[str]:
    """What is worth knowing of a pipeline."""
    ranks, timeline = sorted(set(cutting.ranks)), cutting.timeline
    busy = [sum(r.end - r.start for r in timeline.of(rank)) / timeline.cost for rank in ranks]
    count = len(cutting.layers)
    return [
        f"{cutting.schedule}: {number(count, 'stage')} on {number(len(ranks), 'rank')},"
        f" {number(cutting.microbatches, 'microbatch', 'es')}",
        *(_alike(cutting) if count > MANY else _each(cutting)),
        f"bubble {timeline.bubble:.3f}; busy, by rank: {_by_rank([f'{share:.2f}' for share in busy])}",
        f"most microbatches in flight, by rank: {_by_rank([str(timeline.in_flight(rank)) for rank in ranks])}",
    ]


def number(count: int, word: str, plural: str = "s") -> str:
    """`1 stage`, `2 stages`."""
    return f"{count} {word}{plural if count != 1 else ''}"


def _each(cutting: Cutting) -> Iterator[str]:
    stages = range(len(cutting.layers))
    width = max(len(_members(cutting, s)) for s in stages)
    for s in stages:
        yield f"stage {s:<2} {_members(cutting, s):{width}}  {cutting.axis} {cutting.ranks[s]}"


def _alike(cutting: Cutting) -> Iterator[str]:
    """Neighbours with as many layers, and nothing else that the spec names, together."""
    named = set(cutting.modules.values())
    keys = [(len(layers), s if s in named else -1) for s, layers in enumerate(cutting.layers)]
    for _, run in groupby(range(len(keys)), keys.__getitem__):
        first, *rest = run
        if not rest:
            yield f"stage {first}: {_members(cutting, first)}"
            continue
        layers = range(cutting.layers[first].start, cutting.layers[rest[-1]].stop)
        each = number(len(cutting.layers[first]), "layer")
        yield f"stages {first}-{rest[-1]}: {each} each, {cutting.path}[{layers.start}:{layers.stop}]"


def _by_rank(words: Sequence[str]) -> str:
    return " ".join(words) if len(set(words)) > 1 else f"{words[0]} on each"


def _members(cutting: Cutting, stage: int) -> str:
    piece = cutting.layers[stage]
    own = [f"{cutting.path}[{piece.start}:{piece.stop}]"] if piece else []
    return ", ".join([*own, *(path for path, s in cutting.modules.items() if s == stage)]) or "nothing"
