"""A plan as the ranks at each place of a pipeline see it: their tensors, their stages' collectives, what they send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Plan = Mapping[str, Any]


def places(plan: Plan) -> list[Plan]:
    """One plan for each place along the pipeline's axis; the plan itself if there are no stages.

    Collectives are those of one microbatch, sends to another rank among them.
    """
    pipeline = plan.get("pipeline")
    if not pipeline:
        return [plan]
    stages: Sequence[Mapping[str, Any]] = pipeline["stages"]
    return [_place(plan, stages, place) for place in sorted({stage["rank"] for stage in stages})]


def microbatches(plan: Plan) -> int:
    """How often a step runs what a plan says of one microbatch."""
    pipeline = plan.get("pipeline")
    return pipeline["microbatches"] if pipeline else 1


def _place(plan: Plan, stages: Sequence[Mapping[str, Any]], place: int) -> Plan:
    own = [s for s, stage in enumerate(stages) if stage["rank"] == place]
    held = {
        kind: {name: entry for name, entry in plan[kind].items() if set(own) & set(entry["stages"])}
        for kind in ("parameters", "buffers")
    }
    entries = [entry for s in own for entry in (*stages[s]["collectives"], *_sends(plan, stages, s))]
    return {**plan, **held, "collectives": entries}


def _sends(plan: Plan, stages: Sequence[Mapping[str, Any]], s: int) -> list[Mapping[str, Any]]:
    """What a stage sends to others: values to the one behind it, their gradients to the one before it."""
    axis = plan["pipeline"]["axis"]
    found: list[Mapping[str, Any]] = []
    for other, values, phase in ((s + 1, stages[s]["sends"], "forward"), (s - 1, _sent(stages, s - 1), "backward")):
        if 0 <= other < len(stages) and stages[other]["rank"] != stages[s]["rank"]:
            wanted = [value for value in values if phase == "forward" or value["grad"]]
            found += [_message(value, phase, axis) for value in wanted]
    return found


def _sent(stages: Sequence[Mapping[str, Any]], s: int) -> Sequence[Mapping[str, Any]]:
    return stages[s]["sends"] if s >= 0 else ()


def _message(value: Mapping[str, Any], phase: str, axis: str) -> Mapping[str, Any]:
    entry: dict[str, Any] = dict.fromkeys(("forward", "backward", "forward_elements", "backward_elements"))
    elements = "*".join(f"({size})" for size in value["shape"]) or "1"
    return {**entry, phase: "send", f"{phase}_elements": elements, "axis": axis, "dtype": value["dtype"]}
