"""Mixtures of experts in lines for a terminal: which rank has which, and what is sent to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpar.explain.memory import spell, width
from graphpar.explain.places import microbatches
from graphpar.explain.sizes import number
from graphpar.explain.traffic import Tokens
from graphpar.pipeline.describe import number as number_of


def describe_experts(plan: Mapping[str, Any], size: Tokens) -> list[str]:
    """A line for each kind of mixture: experts, their places, and the rows that a rank has for a layer in one step."""
    layers: dict[str, int] = {}
    for entry in plan["experts"]:
        text = f"{where(entry)}; in each, a rank routes {_rows(entry, plan, size)}"
        layers[text] = layers.get(text, 0) + entry["layers"]
    return [f"{number_of(count, 'layer')} of {text}" for text, count in layers.items()]


def where(entry: Mapping[str, Any]) -> str:
    """How many experts a mixture has, and on which ranks they are."""
    limit = f" of capacity factor {entry['capacity_factor']:g}" if entry["capacity_factor"] else ""
    whose = f"{entry['per_rank']} on each rank of {' '.join(entry['axes'])}" if entry["axes"] else "all on every rank"
    return f"{entry['experts']} experts{limit}, {whose}"


def _rows(entry: Mapping[str, Any], plan: Mapping[str, Any], size: Tokens) -> str:
    times = microbatches(plan)

    def of_step(text: str) -> int:
        return times * number(text, size.batch // times, size.seq)

    rows = of_step(entry["rows"])
    most = "at most " if entry["capacity_factor"] else ""
    whose = f" of {of_step(entry['tokens']):,} tokens" if entry["topk"] else ""
    return f"{most}{rows:,} rows{whose}, {spell(rows * entry['width'] * width(entry['dtype']))}"
