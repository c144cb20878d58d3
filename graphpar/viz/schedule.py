"""The schedule of a build, drawn from what its plan says of its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from graphpar.errors import Diagnostic, GraphparError
from graphpar.pipeline.describe import number
from graphpar.schedules.actions import parse
from graphpar.schedules.clock import Costs, Stuck, Timeline, clock
from graphpar.viz.gantt import gantt

ESTIMATE = "if a stage takes as long as it has operations, and each half of its backward as long as its forward"


def schedule(plan: Mapping[str, Any]) -> str | None:
    """The picture of a step, as the text of an SVG file; None if the plan has no pipeline.

    Times follow from the operations of each stage (see ESTIMATE); messages take none. Raises GraphparError if the order
    cannot be run.
    """
    found = timeline_of(plan)
    return gantt(*found, plan["pipeline"]["axis"]) if found else None


def timeline_of(plan: Mapping[str, Any]) -> tuple[Timeline, str] | None:
    """When each rank runs which stage, and a title for it; None if the plan has no pipeline. Raises as `schedule`."""
    pipeline = plan.get("pipeline")
    if not pipeline:
        return None
    try:
        order = {int(rank): tuple(map(parse, words)) for rank, words in pipeline["order"].items()}
        times = clock(order, Costs.by_work([stage["work"] for stage in pipeline["stages"]]))
    except ValueError as error:
        raise GraphparError(
            _no_order(f"`{error}` is no action; one is `2F0`: stage 2, forward, microbatch 0")
        ) from error
    except Stuck as error:
        raise GraphparError(_no_order(f"it stands still: {error}")) from error
    counts = (
        number(len(pipeline["stages"]), "stage"),
        f"on {number(len(order), 'rank')},",
        number(pipeline["microbatches"], "microbatch", "es"),
    )
    return times, f"{PurePath(pipeline['schedule']).name}: {' '.join(counts)}"


def _no_order(why: str) -> Diagnostic:
    message = "the `order` of the pipeline in plan.json cannot be drawn"
    return Diagnostic("broken-order", None, message, why=(why,), fix="graphpar check BUILD says what is wrong with it")
