"""Every collective of a step as a row: what, over which axis, how often, how many bytes, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphpar.explain.memory import spell, width
from graphpar.explain.places import microbatches, places
from graphpar.explain.sizes import number
from graphpar.explain.traffic import Tokens, gradient_sums, messages
from graphpar.viz.picture import Exchange, Picture

Row = dict[str, Any]


def collectives(picture: Picture, size: Tokens) -> list[Row]:
    """The rows, for each place along a pipeline in turn. What is the same in all that is told is one row."""
    plan = picture.plan
    drawn = _drawn(picture)
    rows = [row for at, place in enumerate(places(plan)) for row in _of_place(plan, place, at, drawn, size)]
    return [
        {**row, "said": spell(row["each"]), "total_said": spell(row["total"]), "number": i}
        for i, row in enumerate(rows)
    ]


def _of_place(
    plan: Mapping[str, Any], place: Mapping[str, Any], at: int, drawn: Mapping[int, Exchange], size: Tokens
) -> Iterator[Row]:
    times, pipeline = microbatches(plan), plan.get("pipeline")
    where = f"{pipeline['axis']} {at}" if pipeline else ""
    found: dict[tuple[Any, ...], Row] = {}
    for phase, direction, entry in messages(place):
        each = number(entry[f"{direction}_elements"], size.batch // times, size.seq) * width(entry["dtype"])
        exchange = drawn.get(id(entry))
        row = {
            "place": where,
            "phase": phase,
            "kind": entry[direction],
            "axis": entry["axis"],
            "each": each,
            "reason": entry.get(
                "reason", "to the next stage" if phase == "forward" else "gradients to the stage before"
            ),
            "rule": _rule(entry),
            "module": entry.get("module", ""),
            "where": entry.get("where") or "",
            "node": exchange.id if exchange else None,
        }
        known = found.setdefault(tuple(row.values()), {**row, "count": 0, "total": 0})
        known["count"] += times
        known["total"] += times * each
    yield from found.values()
    for gradients in gradient_sums(place):
        yield {
            "place": where,
            "phase": gradients.phase,
            "kind": gradients.kind,
            "axis": gradients.axis,
            "each": gradients.bytes / gradients.count,
            "reason": "sums of gradients, after the last backward",
            "rule": "",
            "module": "",
            "where": "",
            "node": None,
            "count": gradients.count,
            "total": gradients.bytes,
        }


def _rule(entry: Mapping[str, Any]) -> str:
    rule = entry.get("rule")
    return f"{rule['text']}, line {rule['line']} of the spec" if rule else ""


def _drawn(picture: Picture) -> dict[int, Exchange]:
    """The exchange that is drawn for each entry of the plan: both are in forward order, a loop's kinds once."""
    pipeline = picture.plan.get("pipeline")
    parts = [s["collectives"] for s in pipeline["stages"]] if pipeline else [picture.plan["collectives"]]
    entries = [entry for part in parts for entry in _once(part)]
    exchanges = [exchange for _, exchange in picture.exchanges() if exchange.forward != "send"]
    return {id(entry): exchange for entry, exchange in zip(entries, exchanges, strict=True)}


def _once(entries: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The entries with each kind of a loop's members once."""
    for entry in entries:
        if "loop" in entry:
            for kind in dict.fromkeys(entry["kinds"]):
                yield from _once(entry["bodies"][kind])
        elif "again" in entry:
            yield from _once(entry["again"])
        else:
            yield entry
