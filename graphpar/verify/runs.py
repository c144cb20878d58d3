"""How a rank runs the microbatches of a step: the whole model one by one, or the stages of a pipeline together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.runtime.gradients import GradientSums
from graphpar.runtime.loss import count_labels
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.stages import Stages
from graphpar.verify.lift import lifted
from graphpar.verify.program import Batch, Program


def microbatches(program: Program, batch: Batch) -> list[Batch]:
    """A batch as the microbatches of a step: as many as the pipeline is planned for, or itself."""
    planned = program.plan.pipeline
    count = planned.microbatches if planned else 1
    parts = {name: x.chunk(count) for name, x in batch.items()}
    return [{name: part[i] for name, part in parts.items()} for i in range(count)]


@dataclass
class Run:
    """A model that takes steps."""

    program: Program
    mesh: Mesh
    model: nn.Module
    seed: int = 0

    def __post_init__(self) -> None:
        self.sums = GradientSums(self.model, self.mesh)
        self.pipeline = self._pipeline()

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """Forward, backward and sums of gradients; this rank's share of the loss."""
        parts = [self.program.part(batch, self.mesh) for batch in batches]
        count = self.count(parts)
        with lifted(self.program.text, self.model):
            if self.pipeline:
                share = self.pipeline.step(parts, count.get("count"), seed=self.seed)
            else:
                share = self._one_by_one(parts, count)
        self.sums.finish()
        return share

    def loss(self, batch: Batch) -> Tensor:
        """This rank's share of the loss of a batch, without gradients."""
        part = self.program.part(batch, self.mesh)
        count = self.count([part])
        with lifted(self.program.text, self.model):
            if self.pipeline:
                return self.pipeline.evaluate(part, count.get("count"))
            with torch.no_grad():
                return self.model(**part, **count)

    def count(self, parts: Sequence[Batch]) -> Mapping[str, Any]:
        """The number of labels of all microbatches, if the model is given one."""
        if not self.program.document["count"]:
            return {}
        with self.mesh.during("step"):
            return {"count": count_labels(self.model, parts, self.program.plan, self.mesh)}

    def _one_by_one(self, parts: Sequence[Batch], count: Mapping[str, Any]) -> Tensor:
        shares: list[Tensor] = []
        for index, part in enumerate(parts):
            share = self.model(**part, **count)
            with self.sums.last_microbatch() if index == len(parts) - 1 else nullcontext():
                share.backward()
            shares.append(share.detach())
        return torch.stack(shares).sum() if len(shares) > 1 else shares[0]

    def _pipeline(self) -> Any:
        if not isinstance(self.model, Stages):
            return None
        from graphpar.runtime.pipeline import Pipeline  # torch's pipelines are slow to import

        dtypes = {p.dtype for p in self.model.parameters()}
        floats = torch.float64 if dtypes == {torch.float64} else None
        return Pipeline(self.model, self.program.plan, self.mesh, self.program.schedule, floats=floats)
