"""A step of a pipeline: torch's runtime for schedules runs the stages that this rank holds.

What runs when is schedule.csv, in torch's words; sends and receives follow from it. Shapes and dtypes of what crosses
are those of plan.json, so nothing is exchanged to find them out. Messages go over the axis of the pipeline, as all
other communication of this program goes over its axis.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import Tensor

from graphpar.runtime.data import Batch
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.pipelined import Pipelined
from graphpar.runtime.plan import Plan, PlanError
from graphpar.runtime.problems import UsageError
from graphpar.runtime.scheduled import Actions, Failed, Scheduled, parse_action
from graphpar.runtime.stage import Stage, Value
from graphpar.runtime.stages import Stages


def read_schedule(path: Path) -> str:
    """The text of a schedule.csv. Raises PlanError if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PlanError(f"{path} is missing: compile the model again") from None


class Pipeline:
    """Runs the stages of a model; all ranks of the mesh call each method together.

    `schedule` is what `read_schedule` reads: one row of actions for each rank of the pipeline. Each stage's forward
    runs inside `context`. `floats` is the dtype in which values of floating point cross, if it is not the plan's: that
    of a model whose parameters have another dtype than the plan says.
    """

    def __init__(
        self,
        model: Stages,
        plan: Plan,
        mesh: Mesh,
        schedule: str,
        context: AbstractContextManager[object] | None = None,
        *,
        floats: torch.dtype | None = None,
    ) -> None:
        if plan.pipeline is None:
            raise PlanError("plan.json has no pipeline, but the program has one: compile the model again")
        self.model = model
        self.plan = plan
        self.mesh = mesh
        self.microbatches = plan.pipeline.microbatches
        self._planned = plan.pipeline
        self._axis = mesh[plan.pipeline.axis]
        self._floats = floats
        self._context = nullcontext() if context is None else context
        self._actions = _actions(schedule, plan.pipeline, model)
        self._now = 0, 0  # seed and step
        self._runs: dict[tuple[int, int], Scheduled] = {}  # by rows and tokens of a rank's microbatch

    def step(self, microbatches: Sequence[Batch], count: Tensor | None, *, seed: int = 0, step: int = 0) -> Tensor:
        """Forward and backward of all microbatches; the sum of their shares of the loss, float64, on every rank.

        Gradients add up in the parameters. Dropout follows from (seed, step, microbatch, stage). Raises UsageError
        for another number of microbatches than the schedule has, or microbatches that differ in shape.
        """
        run = self._run(self._shape(microbatches))
        self._now = seed, step
        extra = {} if count is None else {"count": count}
        try:
            shares = run.step([{**batch, **extra} for batch in microbatches])
        except Failed as failed:
            raise failed.error from None
        return self._everywhere(shares)

    @torch.no_grad()
    def evaluate(self, batch: Batch, count: Tensor | None) -> Tensor:
        """The batch's share of the loss, float64, on every rank of the pipeline: forward only, one microbatch."""
        run = self._run(_shape(batch))
        inputs = batch if count is None else {**batch, "count": count}
        values: tuple[Tensor, ...] = ()
        shares: list[Tensor] = []
        for stage in run.stages:
            if not stage.is_first and stage.stage_index - 1 not in self.model.held:
                values = self._receive(stage)
            values = stage.compute(values, inputs)
            if stage.is_last:
                shares = [values[0]]
            elif stage.stage_index + 1 not in self.model.held:
                target = self._planned.homes[stage.stage_index + 1]
                for handle in [self._axis.send(value, target) for value in values]:
                    handle.wait()
        return self._everywhere(shares)

    def _receive(self, stage: Stage) -> tuple[Tensor, ...]:
        source = self._planned.homes[stage.stage_index - 1]
        values = tuple(value.empty(self.mesh.device) for value in stage.received)
        for handle in [self._axis.receive(value, source) for value in values]:
            handle.wait()
        return values

    def _everywhere(self, shares: Sequence[Tensor]) -> Tensor:
        """The sum of the shares that the last stage's rank has."""
        total = torch.zeros((), dtype=torch.float64, device=self.mesh.device)
        for share in shares:
            total += share.detach()
        if self._axis.size == 1:
            return total
        with self.mesh.during("step"):
            return self._axis.broadcast(total, self._planned.homes[-1])

    # ------------------------------------------------------------ what runs for microbatches of one shape

    def _shape(self, microbatches: Sequence[Batch]) -> tuple[int, int]:
        """Rows and tokens of this rank's part of a microbatch."""
        if len(microbatches) != self.microbatches:
            raise UsageError(
                f"{len(microbatches)} microbatches were given, but {self._planned.schedule} was planned for"
                f" {self.microbatches}: a step takes {self.microbatches}"
            )
        shapes = [_shape(batch) for batch in microbatches]
        if len(set(shapes)) > 1:
            every = ", ".join(f"{rows} x {tokens}" for rows, tokens in shapes)
            raise UsageError(f"the microbatches of a step must have one shape, but are {every} (rows x tokens)")
        return shapes[0]

    def _run(self, shape: tuple[int, int]) -> Scheduled:
        if shape not in self._runs:
            rows, tokens = (length * self.plan.ways(dim) for dim, length in enumerate(shape))
            crossing = [
                tuple(Value(sent.shape(rows, tokens), self._dtype(sent.dtype), sent.grad) for sent in stage.sends)
                for stage in self._planned.stages
            ]
            stages = [self._stage(index, crossing) for index in self.model.held]
            self._runs[shape] = Scheduled(stages, self._axis, self._actions, self.microbatches)
        return self._runs[shape]

    def _dtype(self, planned: torch.dtype) -> torch.dtype:
        return self._floats if self._floats and planned.is_floating_point else planned

    def _stage(self, index: int, crossing: Sequence[tuple[Value, ...]]) -> Stage:
        return Stage(
            self.model.held[index],
            index,
            self._axis,
            crossing,
            self._planned.stages[index].inputs,
            self._context,
            lambda microbatch: self.mesh.seed(*self._now, microbatch, index),
        )


def _shape(batch: Batch) -> tuple[int, int]:
    rows, tokens = next(iter(batch.values())).shape[:2]
    return rows, tokens


def _actions(schedule: str, planned: Pipelined, model: Stages) -> Actions:
    """Each rank's actions. Raises PlanError unless they are those of the plan and of the model."""
    rows = [[word for word in row if word.strip()] for row in csv.reader(schedule.splitlines())]
    actions: Actions = {rank: [parse_action(word) for word in row] for rank, row in enumerate(rows)}
    homes = {a.stage_index: rank for rank, row in actions.items() for action in row
             for a in action.sub_actions or (action,)}  # fmt: skip
    found: Mapping[str, object] = {
        "schedule.csv": [homes.get(stage) for stage in range(len(homes))],
        "plan.json": list(planned.homes),
        "model.py": list(model.homes),
    }
    if len({repr(ranks) for ranks in found.values()}) > 1 or len(actions) != model.axis.size:
        said = "; ".join(f"{file}: {ranks}" for file, ranks in found.items())
        raise PlanError(f"the ranks of the stages differ ({said}): compile the model again")
    return actions
