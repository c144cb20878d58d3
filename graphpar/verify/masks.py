"""Dropout with numbers of the layout's own: no device draws them alone, but what they must be like is known.

How much is dropped where: with each mask replaced by its mean, ranks compute what one device computes. Where masks are
equal: on ranks that hold the same value, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """A call of dropout: what was to be dropped from, and numbers of its stream."""

    x: Tensor
    numbers: Tensor


def without_masks(model: nn.Module, drawn: list[Drawn] | None = None) -> None:
    """Let a generated model keep 1 - p of everything, where it would drop with probability p; and note each call."""

    def note(x: Tensor, stream: Stream) -> None:
        if drawn is not None:
            numbers = torch.rand(NUMBERS, generator=stream.generator, device=x.device)
            drawn.append(Drawn(x.detach(), numbers))

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

    names: dict[str, Any] = type(model).forward.__globals__  # those of model.py
    names.update(dropout=dropout, attention=attention)


def independent(ranks: Sequence[Sequence[Drawn]]) -> Check:
    """Equal numbers where ranks hold the same, others where they hold parts.

    Raises ValueError unless all ranks have the same calls.
    """
    wrong = ""
    for number, calls in enumerate(zip(*ranks, strict=True), start=1):
        for (i, a), (j, b) in combinations(enumerate(calls), 2):
            alike, equal = _alike(a.x, b.x), torch.equal(a.numbers, b.numbers)
            if alike != equal and not (alike and _is_constant(a.x)):  # parts of a constant are alike
                held = "the same" if alike else "different parts"
                drop = "alike" if equal else "differently"
                wrong = wrong or f"call {number} of dropout: ranks {i} and {j} hold {held} and drop {drop}"
    count = f"{len(ranks[0])} calls on each of {len(ranks)} ranks"
    return Check("with dropout: masks", "failed" if wrong else "exact", count, detail=wrong)


def _alike(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and relative(a, b, size(b)) <= EXACT


def _is_constant(x: Tensor) -> bool:
    return x.numel() == 0 or bool((x == x.flatten()[0]).all())
