"""How much a collective moves: the plan's expressions in batch and seq, as text and as bytes."""

from __future__ import annotations

from graphpar.explain.memory import spell
from graphpar.explain.sizes import formula, number
from graphpar.explain.traffic import Tokens


def moved(elements: str, width: int, size: Tokens) -> int:
    """Bytes that one rank hands to the collective at the sizes `size`."""
    return number(elements, size.batch, size.seq) * width


def amount(elements: str, width: int, size: Tokens) -> str:
    """`32·batch·seq × 4 B = 64 KiB`."""
    return f"{formula(elements)} × {width} B = {spell(moved(elements, width, size))}"
