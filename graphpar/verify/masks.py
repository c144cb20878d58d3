"""Dropout with numbers of the layout's own: no device draws them alone, but what they must be like is known.

How much is dropped where: with each mask replaced by its mean, ranks compute what one device computes. Where masks are
equal: on ranks that hold the same value, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.runtime import random
from graphpar.runtime.random import Stream
from graphpar.verify.compare import EXACT, relative, size
from graphpar.verify.report import Check

NUMBERS = 16  # two streams agree in so many only if they are one


@dataclass(frozen=True)
class Drawn:
    """A call of dropout: what was to be dropped from, numbers of its stream, and whether a backward ran it again."""

    x: Tensor
    numbers: Tensor
    again: bool = False


def without_masks(model: nn.Module, drawn: list[Drawn] | None = None) -> None:
    """Let a generated model keep 1 - p of everything, where it would drop with probability p; and note each call."""

    def note(x: Tensor, stream: Stream) -> None:
        if drawn is not None:
            numbers = torch.rand(NUMBERS, generator=stream.generator, device=x.device)
            running = torch._C._current_graph_task_id()  # pyright: ignore[reportPrivateUsage]
            drawn.append(Drawn(x.detach(), numbers, again=running != -1))

    def dropout(x: Tensor, p: float, training: bool, stream: Stream, cut: Any = ()) -> Tensor:
        del cut
        note(x, stream)
        return x * (1 - p if training else 1)

    def attention(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        dropout_p: float,
        training: bool,
        stream: Stream,
        cut: Any = (),
        **how: Any,
    ) -> Tensor:
        del cut
        note(q, stream)
        y = random.attention(q, k, v, dropout_p=0.0, training=False, stream=stream, **how)
        return y * (1 - dropout_p if training else 1)

    names: dict[str, Any] = type(model).__init__.__globals__  # those of model.py
    names.update(dropout=dropout, attention=attention)


def independent(ranks: Sequence[Sequence[Drawn]], groups: Sequence[Sequence[int]]) -> Check:
    """Equal numbers where ranks hold the same, others where they hold parts, or run other stages.

    What is run again in a backward has the numbers of its first run. `groups` are the ranks that run the same stages.
    Raises ValueError unless these have the same calls.
    """
    found_again = [text for rank, calls in enumerate(ranks) for text in _again(rank, calls)]
    ranks = [[call for call in calls if not call.again] for calls in ranks]
    found = [text for group in groups for text in _in_stage([(rank, ranks[rank]) for rank in group])]
    found += _across([[call for rank in group for call in ranks[rank]] for group in groups])
    found = found_again + [text for rank, calls in enumerate(ranks) for text in _twice(rank, calls)] + found
    count = f"{len(ranks[0])} calls on each of {len(ranks)} ranks"
    return Check("with dropout: masks", "failed" if found else "exact", count, detail=found[0] if found else "")


def _again(rank: int, calls: Sequence[Drawn]) -> Iterator[str]:
    first = {tuple(call.numbers.tolist()) for call in calls if not call.again}
    for call in calls:
        if call.again and tuple(call.numbers.tolist()) not in first:
            yield f"rank {rank} drops otherwise when it runs a forward again: {list(call.x.shape)}"
            return


def _twice(rank: int, calls: Sequence[Drawn]) -> Iterator[str]:
    """Calls of one rank with the same numbers: layers, or microbatches, that drop alike."""
    number: dict[tuple[float, ...], int] = {}
    for i, call in enumerate(calls, start=1):
        if (first := number.setdefault(tuple(call.numbers.tolist()), i)) != i:
            yield f"call {i} of dropout on rank {rank} drops as call {first} does"
            return


def _in_stage(ranks: Sequence[tuple[int, Sequence[Drawn]]]) -> Iterator[str]:
    for number, calls in enumerate(zip(*(drawn for _, drawn in ranks), strict=True), start=1):
        for (i, a), (j, b) in combinations([(rank, call) for (rank, _), call in zip(ranks, calls, strict=True)], 2):
            alike, equal = _alike(a.x, b.x), torch.equal(a.numbers, b.numbers)
            if alike != equal and not (alike and _is_constant(a.x)):  # parts of a constant are alike
                held = "the same" if alike else "different parts"
                drop = "alike" if equal else "differently"
                yield f"call {number} of dropout: ranks {i} and {j} hold {held} and drop {drop}"


def _across(places: Sequence[Sequence[Drawn]]) -> Iterator[str]:
    """Places of a pipeline that drop alike: their layers would not be independent."""
    numbers = [{tuple(call.numbers.tolist()) for call in calls} for calls in places]
    for (i, a), (j, b) in combinations(enumerate(numbers), 2):
        if a & b:
            yield f"the stages at places {i} and {j} of the pipeline drop alike"


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and relative(a, b, size(b)) <= EXACT


def _is_constant(x: Tensor) -> bool:
    return x.numel() == 0 or bool((x == x.flatten()[0]).all())
