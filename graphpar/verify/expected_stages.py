"""What a rank of a pipeline has to run in a step: its stages' collectives, and messages to the ranks of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from graphpar.schedules.actions import parse
from graphpar.verify.batches import Size
from graphpar.verify.program import Program
from graphpar.verify.wanted import Wanted, evaluate

Entries: TypeAlias = Sequence[Mapping[str, Any]]


def actions(program: Program, rank: int) -> list[tuple[Entries, str]]:
    """The collectives of each action of a rank with its kind; without a pipeline, a forward and a backward."""
    if not program.plan.pipeline:
        entries = program.document["collectives"]
        return [(entries, "F"), (entries, "B")]
    stages = program.document["pipeline"]["stages"]
    return [(stages[stage]["collectives"], kind) for stage, kind in _row(program, rank)]


def _row(program: Program, rank: int) -> list[tuple[int, str]]:
    document = program.document["pipeline"]
    place = program.places()[rank].at[document["axis"]]
    return [(action.stage, action.kind) for word in document["order"][str(place)] for action in parse(word)]


def messages(program: Program, rank: int, size: Size, dtype: torch.dtype) -> list[Wanted]:
    """What a rank sends and receives in a step: values with forwards, their gradients with backwards."""
    if not program.plan.pipeline:
        return []
    found: list[Wanted] = []
    for stage, kind in _row(program, rank):
        if kind == "F":
            found += _messages(program, stage, ("recv", stage - 1), ("send", stage + 1), size, dtype, grad=False)
        elif kind in ("B", "I"):
            found += _messages(program, stage, ("send", stage - 1), ("recv", stage + 1), size, dtype, grad=True)
    return found


def _messages(
    program: Program,
    stage: int,
    before: tuple[str, int],
    behind: tuple[str, int],
    size: Size,
    dtype: torch.dtype,
    *,
    grad: bool,
) -> Iterable[Wanted]:
    document = program.document["pipeline"]
    stages = document["stages"]
    for kind, other in (before, behind):
        if 0 <= other < len(stages) and stages[other]["rank"] != stages[stage]["rank"]:
            for value in stages[min(stage, other)]["sends"]:
                if value["grad"] or not grad:
                    what = f"stage {stage} and stage {other}: {value['axes']}"
                    yield Wanted(kind, document["axis"], _bytes(value, size, dtype), what)


def _bytes(value: Mapping[str, Any], size: Size, dtype: torch.dtype) -> int:
    held = dtype if (own := getattr(torch, value["dtype"])).is_floating_point else own
    return prod(evaluate(text, size) for text in value["shape"]) * held.itemsize


def loss_of_pipeline(program: Program) -> list[Wanted]:
    """The loss, from the last stage to all."""
    planned = program.plan.pipeline
    several = planned and program.mesh[planned.axis] > 1
    return [Wanted("broadcast", planned.axis, 8, "loss of the last stage")] if planned and several else []


def shared(program: Program, dtype: torch.dtype, order: Sequence[str]) -> list[Wanted]:
    """The sums of gradients over the ranks that share parameters: one for each set of ranks and dtype."""
    if not program.plan.pipeline:
        return []
    sizes: dict[tuple[tuple[int, ...], str], list[int]] = {}
    for name, places in program.document["pipeline"]["shared"].items():
        if name in order:
            entry = program.document["parameters"][name]
            count = prod(entry["local_shape"]) * dtype.itemsize
            sizes.setdefault((tuple(places), entry["dtype"]), []).append(count)
    axis = program.plan.pipeline.axis
    return [Wanted("all_reduce", axis, sum(s), f"gradients that {len(s)} stages share") for s in sizes.values()]
