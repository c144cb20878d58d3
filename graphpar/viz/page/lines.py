"""What stands on each line of model.py that is drawn: its values, its tensors, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphpar.viz.page.states import values
from graphpar.viz.picture import Compute, Exchange, Module, Picture, Row, Value


def lines(picture: Picture) -> dict[str, dict[str, Any]]:
    """The facts of each line, by its number."""
    found: dict[str, dict[str, Any]] = {}
    for row in [*picture.root.rows(), *(exchange.row for _, exchange in picture.exchanges())]:
        if row.line and str(row.line) not in found:
            found[str(row.line)] = _line(row, picture)
    return found


def nodes(picture: Picture) -> dict[str, dict[str, Any]]:
    """The module and the lines of each node, by its name; no lines for what is sent from stage to stage."""
    return dict(_nodes(picture.root))


def ends(pictures: Iterable[Picture]) -> dict[str, dict[str, Any]]:
    """What goes into pictures and comes out of them, by the name of its node."""
    return {value.id: _end(value, picture) for picture in pictures for value in (*picture.inputs, picture.result)}


def _line(row: Row, picture: Picture) -> dict[str, Any]:
    source = picture.plan.get("lines", {}).get(str(row.line), {})
    return {
        "code": row.code,
        "values": values(row.axes, row.pending, picture.plan),
        "where": source.get("where", ""),
        "module": source.get("module", ""),
        "tensors": [weight.full_name for weight in row.weights],
    }


def _end(value: Value, picture: Picture) -> dict[str, Any]:
    return {"name": value.name, "values": values(value.axes, value.pending, picture.plan)}


def _nodes(module: Module) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in module.items:
        match item:
            case Compute():
                yield item.id, {"module": module.id, "lines": [row.line for row in item.rows]}
            case Exchange():
                yield item.id, {"module": module.id, "lines": [item.row.line] if item.row.line else []}
            case Module():
                yield from _nodes(item)
