"""How much a collective moves: the plan's expressions in batch and seq, as text and as bytes."""

from __future__ import annotations

from collections.abc import Iterator

from graphpar.explain.memory import spell
from graphpar.explain.sizes import formula, number
from graphpar.explain.traffic import Tokens
from graphpar.viz.picture import Exchange


def moved(elements: str, width: int, size: Tokens) -> int:
    """Bytes that one rank hands to the collective at the sizes `size`."""
    return number(elements, size.batch, size.seq) * width


def amount(elements: str, width: int, size: Tokens) -> str:
    """`32·batch·seq × 4 B = 64 KiB`."""
    return f"{formula(elements)} × {width} B = {spell(moved(elements, width, size))}"


def facts(exchange: Exchange, size: Tokens) -> Iterator[str]:
    """What a collective moves forward and backward, and why."""
    if exchange.forward and exchange.forward_elements:
        again = ", and again in the backward pass" if exchange.twice else ""
        yield f"{amount(exchange.forward_elements, exchange.width, size)} from each rank{again}"
    if exchange.backward and exchange.backward_elements:
        sent = amount(exchange.backward_elements, exchange.width, size)
        yield f"backward: {exchange.backward}, {sent}" if exchange.forward else f"{sent} from each rank"
    yield exchange.why
