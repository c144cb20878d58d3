"""The order of a rank's actions, and the run of one step in it."""

# torch's runtime for schedules from files has an underscore; its parts that are replaced here have one as well.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.distributed.pipelining import schedules
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from graphpar.runtime.axis import Axis
from graphpar.runtime.comm import Handle
from graphpar.runtime.plan import PlanError
from graphpar.runtime.stage import Failed, Stage, plain_errors

__all__ = ["Actions", "Failed", "Scheduled", "parse_action"]

Actions: TypeAlias = "dict[int, list[_Action]]"
_UNDER_WAY = 4  # messages of a stage that are not waited for


def _recorded(name: str) -> AbstractContextManager[object]:
    """A range for the profiler, if one runs."""
    return record_function(name) if torch.autograd._profiler_enabled() else nullcontext()


# torch marks a range for each action, profiler or not: 0.1 ms each, of actions that may take as little as 1 ms.
schedules.record_function = _recorded


def parse_action(word: str) -> _Action:
    """One word of a schedule.csv. Raises PlanError for another word."""
    try:
        action = _Action.from_str(word)
    except RuntimeError:
        action = None
    if action is None or not action.is_compute_op:
        raise PlanError(f"schedule.csv has {word!r}, which is no action: compile the model again")
    return action


class Scheduled(_PipelineScheduleRuntime):
    """One rank's stages for microbatches of one shape."""

    def __init__(self, stages: Sequence[Stage], axis: Axis, actions: Actions, microbatches: int) -> None:
        super().__init__(list(stages), microbatches, loss_fn=lambda share, _: share, scale_grads=False)
        self.stages = list(stages)
        self._axis = axis
        self._prepare_schedule_with_comms({rank: [*row] for rank, row in actions.items()})
        for stage in stages:
            stage.prepare(microbatches)
        # Nothing is left to be found out: the first step exchanges no shapes.
        self._stages_forward_initialized = self._stages_backward_initialized = True
        self._at = {stage.stage_index: stage for stage in stages}
        self._shares: dict[int, Tensor] = {}  # of the loss, by microbatch
        self._under_way: deque[Handle] = deque()
        kinds = _ComputationType
        self._comp_type_to_function_map.update(
            {
                kinds.SEND_F: self._send_values,
                kinds.RECV_F: self._receive_values,
                kinds.SEND_B: self._send_gradients,
                kinds.RECV_B: self._receive_gradients,
            }
        )

    def step(self, inputs: Sequence[Mapping[str, Tensor]]) -> list[Tensor]:
        """Run all actions; the shares of the loss, in the order of the microbatches, where the last stage is."""
        for stage in self.stages:
            stage.clear_runtime_states()
        self._step_microbatches(kwarg_mbs=[dict(named) for named in inputs], return_outputs=False)
        with plain_errors():
            self._finish_sends(0)
        shares = [self._shares[microbatch] for microbatch in sorted(self._shares)]
        self._shares.clear()
        return shares

    # ------------------------------------------------------------ messages

    def _send_values(self, action: Any, context: Any) -> None:
        stage, to = self._at[action.stage_index], action.stage_index + 1
        values, _ = stage.fwd_cache[action.microbatch_index]
        self._send([value.detach() for value in values], to, "forward")

    def _receive_values(self, action: Any, context: Any) -> None:
        stage, microbatch = self._at[action.stage_index], action.microbatch_index
        infos = stage.args_recv_info[microbatch]
        handles = self._receive(infos, action.stage_index - 1, "forward")
        self.fwd_recv_ops[action.stage_index, microbatch] = handles

    def _send_gradients(self, action: Any, context: Any) -> None:
        stage = self._at[action.stage_index]
        gradients = zip(stage.bwd_cache.pop(action.microbatch_index), stage.received, strict=True)
        # a value that the stage made no use of has no gradient, but the stage before waits for one
        whole = [torch.zeros(value.shape, dtype=value.dtype, device=stage.device) if gradient is None else gradient
                 for gradient, value in gradients if value.grad]  # fmt: skip
        self._send(whole, action.stage_index - 1, "backward")

    def _receive_gradients(self, action: Any, context: Any) -> None:
        stage, microbatch = self._at[action.stage_index], action.microbatch_index
        infos = [info for info in stage.grad_recv_info[microbatch] if info.tensor_meta is not None]
        self.bwd_recv_ops[action.stage_index, microbatch] = self._receive(infos, action.stage_index + 1, "backward")

    def _send(self, tensors: Sequence[Tensor], stage: int, phase: str) -> None:
        with plain_errors(), self._axis.mesh.during(phase):
            for tensor in tensors:
                self._under_way.append(self._axis.send(tensor.contiguous(), self.stage_index_to_group_rank[stage]))
            self._finish_sends(_UNDER_WAY * len(self.stages))

    def _receive(self, infos: Sequence[Any], stage: int, phase: str) -> list[Any]:
        with plain_errors(), self._axis.mesh.during(phase):
            handles: list[Any] = []
            for info in infos:
                meta = info.tensor_meta
                info.buffer = torch.empty(meta.shape, dtype=meta.dtype, device=self._axis.mesh.device)
                source = self.stage_index_to_group_rank[stage]
                handles.append(_Coming(self._axis.receive(info.buffer, source)))
            return handles

    def _finish_sends(self, left: int) -> None:
        """Let the oldest go until `left` are under way: each keeps a tensor alive."""
        while len(self._under_way) > left:
            self._under_way.popleft().wait()

    # ------------------------------------------------------------ the loss

    def _maybe_compute_loss(
        self, stage: Any, output: Any, target_mbs: Any, mb_index: Any, loss_kwargs: Any = None
    ) -> None:
        """Keep the share of a microbatch: the last stage returns it."""
        if stage.is_last:
            self._shares[mb_index] = output

    def _maybe_get_loss(self, stage: Any, mb_index: int) -> Any:
        """Where a backward starts: torch counts losses in the order of the forwards, which a file may change."""
        return self._shares[mb_index] if stage.is_last else None

    def _update_losses(self, stages: Any, losses: Any) -> None:
        """The shares are taken by `step`."""


class _Coming:
    """A message that is waited for in torch's runtime."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def wait(self) -> None:
        """Return when it is here."""
        with plain_errors():
            self._handle.wait()
