"""A stage as torch's pipelines run it, with what this runtime adds."""

# The constructor of a stage asks torch.distributed who it is; its other methods are meant to be overridden.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import distributed_c10d as c10d
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._utils import InferenceMode

from graphpar.runtime.axis import Axis
from graphpar.runtime.plan import PlanError

_MAKING = threading.Lock()


@dataclass(frozen=True)
class Value:
    """What crosses from one stage to the next in a microbatch: a rank's part of it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    grad: bool  # whether its gradient comes back

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"

    def empty(self, device: torch.device) -> Tensor:
        """Where to receive it."""
        return torch.empty(self.shape, dtype=self.dtype, device=device)

    def example(self) -> Tensor:
        """What tells torch of it."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta", requires_grad=self.grad)


class Failed(BaseException):
    """Carries an error past torch's runtime, which would print its whole schedule and wrap the error."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextmanager
def plain_errors() -> Generator[None]:
    """Let errors out as they were raised first."""
    try:
        yield
    except Exception as error:  # noqa: BLE001  (raised again by whoever started the step)
        first = error
        while isinstance(first, RuntimeError) and isinstance(first.__cause__, Exception):
            first = first.__cause__
        raise Failed(first) from None


class Stage(PipelineStage):
    """Receives positionally, takes its inputs by name, and sends what the plan says, in the plan's dtypes.

    Buffers live from the receipt to the end of the backward, not as long as the run: what a schedule saves by
    running few microbatches at a time is memory.
    """

    def __init__(
        self,
        module: nn.Module,
        index: int,
        axis: Axis,
        crossing: Sequence[tuple[Value, ...]],
        inputs: Sequence[str],
        context: AbstractContextManager[object],
        before: Callable[[int], None],
    ) -> None:
        """`crossing`: what each stage sends; `before` is called with the microbatch before each forward of a step."""
        self.received = crossing[index - 1] if index else ()
        self.sent = crossing[index]
        self._inputs = tuple(inputs)
        self._context = context
        self._before = before
        total = len(crossing)
        sends = [value.example() for value in self.sent] or [torch.empty((), device="meta", requires_grad=True)]
        with _place_in(axis) as group:
            super().__init__(
                module,
                index,
                total,
                axis.mesh.device,
                input_args=tuple(value.example() for value in self.received),
                output_args=tuple(sends),
                group=group,
            )

    def prepare(self, microbatches: int) -> None:
        """Be ready for steps of so many microbatches."""
        self._inference_mode = InferenceMode.STATIC
        self.has_backward = True
        self._prepare_forward_infra(microbatches, None, None, has_backward=True)
        self._prepare_backward_infra(microbatches)
        for info in self._every_receipt():
            info.buffer = None

    def compute(self, received: tuple[Tensor, ...], inputs: Mapping[str, Tensor]) -> tuple[Tensor, ...]:
        """What this stage sends, or its share of the loss."""
        with self._context:
            values = self.submod(*received, **{name: inputs[name] for name in self._inputs})
        values = tuple(values) if isinstance(values, (tuple, list)) else (values,)
        if self.is_last:
            return tuple(_own(value) for value in values)
        found = [
            Value(tuple(value.shape), want.dtype, want.grad) for value, want in zip(values, self.sent, strict=False)
        ]
        if len(values) != len(self.sent) or found != list(self.sent):
            wanted, got = (", ".join(map(str, listed)) for listed in (self.sent, found))
            raise PlanError(f"stage {self.stage_index} sends {got}; plan.json says {wanted}: compile the model again")
        # autocast may have made it narrower
        return tuple(_own(value.to(want.dtype)) for value, want in zip(values, self.sent, strict=True))

    # ------------------------------------------------------------ what torch's runtime calls

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        save_forward_output: bool = True,
    ) -> Any:
        """The forward of one microbatch."""
        with plain_errors():
            self._before(fwd_chunk_id)
            chosen = {name: (kwargs or {})[name] for name in self._inputs}
            values = super().forward_one_chunk(fwd_chunk_id, args, chosen, save_forward_output)
        for info in self.args_recv_info[fwd_chunk_id]:
            info.buffer = None  # the graph has it now
        return values

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """The module's forward."""
        values = self.compute(args, kwargs)
        return values[0] if self.is_last else values

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """The backward of one microbatch, or of its inputs only."""
        with plain_errors():
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        for info in self.grad_recv_info[bwd_chunk_id]:
            info.buffer = None

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The backward of one microbatch's weights."""
        with plain_errors():
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    def set_local_bwd_input(self, next_stage_bwd_outputs: tuple[Tensor | None, ...], mb_index: int) -> None:
        """Take the gradients that the next stage, on this rank, has made."""
        grads = zip(next_stage_bwd_outputs, self.sent, strict=True)
        whole = (torch.zeros_like(v.example(), device=self.device) if g is None and v.grad else g for g, v in grads)
        super().set_local_bwd_input(tuple(whole), mb_index)

    def _every_receipt(self) -> Generator[Any]:
        for infos in (*self.args_recv_info.values(), *self.grad_recv_info.values()):
            yield from infos


def _own(value: Tensor) -> Tensor:
    """A contiguous tensor, as is sent, that is no view: the halves of a backward detach it in place."""
    if value._is_view() or not value.is_contiguous():
        return value.clone(memory_format=torch.contiguous_format)
    return value


@contextmanager
def _place_in(axis: Axis) -> Generator[dist.ProcessGroup]:
    """A process group that tells a stage, while it is made, its rank's place along the axis.

    Simulated ranks have no process group, and torch would look for the default one. No message goes through it.
    """
    with _MAKING:
        make: Any = dist.ProcessGroup  # torch's stub leaves this constructor out
        group, default = make(axis.rank, axis.size), c10d._world.default_pg
        me = 0 if default is None else default.rank()
        if default is None:
            c10d._world.default_pg = make(0, 1)
        c10d._world.pg_group_ranks[group] = {me: axis.rank}
        try:
            yield group
        finally:
            del c10d._world.pg_group_ranks[group]
            c10d._world.default_pg = default
