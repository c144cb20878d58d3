"""Sizes in plan.json: expressions in batch and seq, as text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sympy

SYMBOLS = {name: sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "seq")}
_ROUNDING = ("CeilToInt", "FloorToInt", "TruncToInt", "RoundToInt", "ToFloat", "FloatTrueDiv", "IntTrueDiv")


@lru_cache(maxsize=10_000)  # the layers of a deep model say the same
def expression(text: str) -> Any:
    """A size as sympy has it."""
    return sympy.parse_expr(text, local_dict=SYMBOLS | _functions(text))


@lru_cache(maxsize=10_000)
def number(text: str, batch: int, seq: int) -> int:
    """The number that a size is for a batch."""
    return int(expression(text).subs({SYMBOLS["batch"]: batch, SYMBOLS["seq"]: seq}))


def formula(text: str) -> str:
    """A size as people write it: `32·batch·seq`, `batch·seq/2`."""
    return re.sub(r"\s*\*\s*", "·", str(expression(text)))


def _functions(text: str) -> dict[str, Any]:
    """How torch rounds numbers to sizes, where a model does that."""
    if not any(name in text for name in _ROUNDING):
        return {}
    from torch.utils._sympy import functions  # takes seconds: only where it is needed

    return {name: getattr(functions, name) for name in _ROUNDING}
