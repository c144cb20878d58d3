"""The pipeline of plan.json: what its stages take, send and hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from graphpar.runtime.sizes import size


@dataclass(frozen=True)
class Sent:
    """One value that a stage sends to the next."""

    dims: tuple[str, ...]  # of one rank's part: expressions in batch and seq
    dtype: torch.dtype
    grad: bool  # whether its gradient comes back

    def shape(self, batch: int, seq: int) -> tuple[int, ...]:
        """The shape for a microbatch of `batch` rows over all ranks. Raises ValueError where a dim is no integer."""
        return tuple(size(dim, {"batch": batch, "seq": seq}) for dim in self.dims)


@dataclass(frozen=True)
class PlannedStage:
    """One stage."""

    rank: int  # its rank's coordinate along the axis of the pipeline
    layers: range
    inputs: tuple[str, ...]  # the model's inputs that its forward takes, by name
    sends: tuple[Sent, ...]  # nothing if it is the last


@dataclass(frozen=True)
class Pipelined:
    """All stages, in order."""

    axis: str
    schedule: str
    microbatches: int  # of one step
    stages: tuple[PlannedStage, ...]

    @property
    def homes(self) -> tuple[int, ...]:
        """The coordinate of each stage's rank."""
        return tuple(stage.rank for stage in self.stages)


@dataclass(frozen=True)
class Owners:
    """The ranks that hold something, where not all do: their coordinates along the axis of the pipeline."""

    axis: str
    coordinates: tuple[int, ...]


def read_pipelined(document: Mapping[str, Any]) -> Pipelined:
    """The `pipeline` entry of plan.json. Raises KeyError for what is missing."""
    stages = (
        PlannedStage(
            rank=entry["rank"],
            layers=range(*entry["layers"]),
            inputs=tuple(entry["inputs"]),
            sends=tuple(
                Sent(tuple(map(str, sent["shape"])), getattr(torch, sent["dtype"]), sent["grad"])
                for sent in entry["sends"]
            ),
        )
        for entry in document["stages"]
    )
    return Pipelined(document["axis"], document["schedule"], document["microbatches"], tuple(stages))
