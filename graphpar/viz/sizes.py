"""How much a collective moves: the plan's expressions in batch and seq, as text and as bytes."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import sympy

from graphpar.explain.memory import spell
from graphpar.explain.traffic import Tokens


@lru_cache(maxsize=1024)
def _expression(elements: str) -> Any:
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "seq")}
    return sympy.parse_expr(elements, local_dict=symbols)


def moved(elements: str, width: int, size: Tokens) -> int:
    """Bytes that one rank hands to the collective at the sizes `size`."""
    expression = _expression(elements)
    sizes = {"batch": size.batch, "seq": size.seq}
    return int(expression.subs({symbol: sizes[symbol.name] for symbol in expression.free_symbols})) * width


def formula(elements: str) -> str:
    """The number of elements: `32·batch·seq`, `batch·seq/2`."""
    return re.sub(r"\s*\*\s*", "·", str(_expression(elements)))


def amount(elements: str, width: int, size: Tokens) -> str:
    """`32·batch·seq × 4 B = 64 KiB`."""
    return f"{formula(elements)} × {width} B = {spell(moved(elements, width, size))}"
