"""plan.json, read into plain values: what the training side needs to know about the compiled model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphpar.runtime.pipelined import Owners, Pipelined, read_pipelined
from graphpar.runtime.random import Rng
from graphpar.runtime.shards import Dims, mesh_axes, read_dims


class PlanError(RuntimeError):
    """plan.json or init.json is not what this runtime can use."""


@dataclass(frozen=True)
class Stored:
    """One parameter or buffer of the source model, and the part of it that a rank holds."""

    name: str
    shape: tuple[int, ...]  # in the source model
    local_shape: tuple[int, ...]  # on every rank, with padding
    dtype: torch.dtype
    dims: Dims
    aliases: tuple[str, ...] = ()  # other names of the same tensor
    trainable: bool = False
    persistent: bool = True  # False: the source leaves it out of its state_dict
    stages: tuple[int, ...] | None = None  # of the pipeline, those that hold it
    owners: Owners | None = None  # their ranks; None: every rank holds its part

    def held_at(self, coordinates: Mapping[str, int]) -> bool:
        """Whether the rank at these coordinates holds a part of it."""
        return self.owners is None or coordinates[self.owners.axis] in self.owners.coordinates

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that cut it."""
        return mesh_axes(self.dims)

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then its aliases."""
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class Input:
    """One input of the model. `cut` says which mesh axes take contiguous blocks of which dim."""

    name: str
    dtype: torch.dtype
    cut: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class Plan:
    """The decisions of the compiler that training depends on."""

    mesh: Mapping[str, int]  # outermost first: rank order
    data_axes: tuple[str, ...]  # the axes that cut tokens: the loss is a partial sum over them
    inputs: tuple[Input, ...]  # token ids first, then labels
    parameters: Mapping[str, Stored]
    buffers: Mapping[str, Stored]
    unread: Mapping[str, Stored]  # of the source's state_dict, but no loss depends on them: on no rank
    labels: str  # "same": the model shifts them; "next": labels[i] is the token after ids[i]; "row": one for each row
    ignore_index: int | None  # the label that the loss leaves out
    vocab: int | None
    max_seq: int | None
    seq_multiple: int  # the sequence length divides by this
    rng: Rng = "statistical"  # whether dropout's masks are those of one device
    adds_up: bool = True  # the loss of a batch is the sum over its parts, given their common count
    count: bool = True  # the model is given that count; otherwise it divides its loss by itself
    pipeline: Pipelined | None = None
    classes: int | None = None  # of labels of rows

    @property
    def stored(self) -> dict[str, Stored]:
        """Parameters and buffers by name."""
        return {**self.parameters, **self.buffers}

    @property
    def saved(self) -> dict[str, Stored]:
        """What the source's state_dict holds of it: every parameter, and the persistent buffers."""
        return {name: stored for name, stored in self.stored.items() if stored.persistent}

    def ways(self, dim: int) -> int:
        """Into how many blocks the mesh cuts dim `dim` of the token ids."""
        ways = 1
        for axis in self.inputs[0].cut.get(dim, ()):
            ways *= self.mesh[axis]
        return ways


def read_plan(path: Path) -> Plan:
    """Read a plan.json. Raises PlanError when it is missing, broken or lacks an entry."""
    document = _json(path)
    try:
        return plan_of(document)
    except KeyError as missing:
        raise PlanError(f"{path}: entry {missing} is missing") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise PlanError(f"{path} is missing: compile the model again") from None
    except json.JSONDecodeError as error:
        raise PlanError(f"{path} is not JSON: {error}") from None


def plan_of(document: Mapping[str, Any]) -> Plan:
    """A plan.json that was read. Raises KeyError for an entry that is missing."""
    pipeline = read_pipelined(document["pipeline"]) if document.get("pipeline") else None
    inputs = tuple(
        Input(
            entry["name"],
            _dtype(entry["dtype"]),
            {int(dim): tuple(axes) for dim, axes in entry.get("cut", {}).items()},
        )
        for entry in document["inputs"]
    )
    return Plan(
        mesh=dict(document["mesh"]),
        data_axes=tuple(document["data_axes"]),
        inputs=inputs,
        parameters={name: _stored(name, entry, pipeline) for name, entry in document["parameters"].items()},
        buffers={name: _stored(name, entry, pipeline) for name, entry in document["buffers"].items()},
        unread={name: _stored(name, entry) for name, entry in document.get("unread", {}).items()},
        labels=document.get("labels", "same"),
        ignore_index=document.get("ignore_index", -100),
        vocab=document.get("vocab"),
        max_seq=document.get("max_seq"),
        seq_multiple=document.get("seq_multiple", 1),
        rng=document.get("rng", "statistical"),
        adds_up=document.get("adds_up", True),
        count=document.get("count", True),
        pipeline=pipeline,
        classes=document.get("classes"),
    )


def _stored(name: str, entry: dict[str, Any], pipeline: Pipelined | None = None) -> Stored:
    stages = None if entry.get("stages") is None else tuple(entry["stages"])
    owners = None
    if pipeline is not None and stages is not None:
        owners = Owners(pipeline.axis, tuple(sorted({pipeline.homes[stage] for stage in stages})))
    return Stored(
        name=name,
        shape=tuple(entry["shape"]),
        local_shape=tuple(entry.get("local_shape", entry["shape"])),
        dtype=_dtype(entry["dtype"]),
        dims=read_dims(entry.get("dims", [])),
        aliases=tuple(entry.get("aliases", ())),
        trainable=entry.get("trainable", False),
        persistent=entry.get("persistent", True),
        stages=stages,
        owners=owners,
    )


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise PlanError(f"plan.json names the dtype {name!r}, which torch does not have")
    return dtype
