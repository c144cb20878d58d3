"""The schedules that have names, each as its authors order it.

gpipe          GPipe (Huang et al. 2019, arXiv:1811.06965)
1f1b           PipeDream-Flush, one forward and one backward in turn (Narayanan et al. 2021, arXiv:2006.09503)
interleaved    1f1b with several stages on a rank (Narayanan et al. 2021, arXiv:2104.04473)
zero_bubble    interleaved, weight gradients where a rank would wait (Qi et al. 2023, arXiv:2401.10241)
zbv            two stages on a rank, there and back (Qi et al. 2024, arXiv:2405.15362)
dualpipev      zbv with forwards and backwards that overlap (DeepSeek-AI 2025, DualPipe)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphpar.schedules.actions import Action, Order, Step, parse


def order(name: str, ranks: int, stages: int, microbatches: int) -> Order:
    """Who does what in which order: `stages` stages on each of `ranks` ranks, and so many microbatches of a step.

    Raises ValueError with torch's words if the schedule has no such order.
    """
    return ORDERS[name](ranks, stages, microbatches)


def gpipe(ranks: int, stages: int, microbatches: int) -> Order:
    """All forwards, then all backwards."""
    del stages
    every = range(microbatches)
    return {r: tuple((Action(r, kind, m),) for kind in ("F", "B") for m in every) for r in range(ranks)}


def one_forward_one_backward(ranks: int, stages: int, microbatches: int) -> Order:
    """A rank runs ahead by as many forwards as there are ranks behind it, then takes turns."""
    del stages
    found: dict[int, tuple[Step, ...]] = {}
    for rank in range(ranks):
        ahead = min(microbatches, ranks - 1 - rank)
        forwards = [Action(rank, "F", m) for m in range(microbatches)]
        backwards = [Action(rank, "B", m) for m in range(microbatches)]
        turns = [a for pair in zip(forwards[ahead:], backwards, strict=False) for a in pair]
        rest = backwards[microbatches - ahead :]
        found[rank] = tuple((a,) for a in (*forwards[:ahead], *turns, *rest))
    return found


@dataclass
class _Stage:
    """What torch's schedules ask of a stage when they order actions."""

    stage_index: int
    num_stages: int
    group_size: int
    group_rank: int = 0
    submod: Any = None
    is_first: bool = False
    is_last: bool = False


def of_torch(name: str) -> Callable[[int, int, int], Order]:
    """The order that a class of torch.distributed.pipelining makes."""

    def made(ranks: int, stages: int, microbatches: int) -> Order:
        from torch.distributed.pipelining import schedules  # slow to import, and only pipelines need it

        held = [_Stage(i, ranks * stages, ranks) for i in range(stages)]
        cls = getattr(schedules, name)
        actions = cls(held, microbatches, loss_fn=lambda output, _: output, scale_grads=False).pipeline_order
        return {rank: tuple(parse(str(a)) for a in row if a is not None) for rank, row in actions.items()}

    return made


ORDERS: Mapping[str, Callable[[int, int, int], Order]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": of_torch("ScheduleInterleaved1F1B"),
    "zero_bubble": of_torch("ScheduleInterleavedZeroBubble"),
    "zbv": of_torch("ScheduleZBVZeroBubble"),
    "dualpipev": of_torch("ScheduleDualPipeV"),
}
