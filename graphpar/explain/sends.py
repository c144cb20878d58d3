"""What the stages of a pipeline send to each other, as entries like those of other collectives, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphpar.explain.laws import LAWS, WITHOUT
from graphpar.explain.quotes import Rule
from graphpar.explain.reasons import Chain, Step, Without, alone


def sends(pipeline: Mapping[str, Any], s: int) -> Iterator[dict[str, Any]]:
    """The values that stage `s` sends to the next one, if that is on another rank."""
    stages, axis = pipeline["stages"], pipeline["axis"]
    if s + 1 == len(stages) or stages[s]["rank"] == stages[s + 1]["rank"]:
        return
    for value in stages[s]["sends"]:
        elements = "*".join(f"({size})" for size in value["shape"]) or "1"
        yield {
            "op": "send",
            "axis": axis,
            "forward": "send",
            "forward_elements": elements,
            "backward": "send" if value["grad"] else None,
            "backward_elements": elements if value["grad"] else None,
            "dtype": value["dtype"],
            "shape": value["axes"],
            "module": value["module"],
            "where": value["where"],
            "reason": f"stage {s + 1} is on {axis} {stages[s + 1]['rank']}",
            "stages": (s, stages[s]["rank"], s + 1, stages[s + 1]["rank"]),
        }


def chain_of_send(entry: Mapping[str, Any], rule: Rule) -> Chain:
    """Why a value is sent: the stage that computes it and the one that reads it are on two ranks."""
    here, rank, there, other = entry["stages"]
    axis = entry["axis"]
    computed = f"stage {here}, on {axis} {rank}, has it from {entry['module'] or 'the model itself'}"
    read = f"stage {there}, on {axis} {other}, reads it"
    steps = (Step(computed, entry["module"], entry["where"], None), Step(read, "", None, rule))
    law = LAWS["send"]
    without = (Without(str(rule), WITHOUT["send", "needed"]), *alone(axis))
    return Chain(steps, law.forward, law.backward if entry["backward"] else "no gradient flows here", without)
