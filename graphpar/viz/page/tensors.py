"""Parameters and buffers: where each is drawn, how it lies on the mesh, and which rank has which part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graphpar.viz.colours import pieces
from graphpar.viz.page.members import stands_for
from graphpar.viz.page.shares import shares
from graphpar.viz.page.states import dimensions, states
from graphpar.viz.part import modules
from graphpar.viz.picture import Compute, Exchange, Module, Picture, Row


@dataclass(frozen=True)
class _Drawn:
    """A tensor as a line of a module reads it: its name there, and its name in the plan."""

    module: Module
    line: int
    path: str
    name: str


def tensors(picture: Picture) -> dict[str, Any]:
    """Each tensor of the plan, and the layouts that they have: the layers of a model lie alike."""
    drawn = list(_drawn(picture))
    layouts: dict[str, int] = {}
    found: list[dict[str, Any]] = []
    held: list[dict[str, Any]] = []
    for kind in ("parameters", "buffers"):
        for name, entry in picture.plan[kind].items():
            key = json.dumps({word: value for word, value in entry.items() if word != "aliases"})
            if key not in layouts:
                layouts[key] = len(layouts)
                held.append({"kind": kind.removesuffix("s"), **_layout(entry, picture)})
            at = _place(name, drawn)
            place = {"module": at.module.id, "line": at.line} if at else {"module": None, "line": None}
            found.append({"name": name, "layout": layouts[key], **place})
    return {"list": found, "layouts": held}


def _layout(entry: Mapping[str, Any], picture: Picture) -> dict[str, Any]:
    """How a tensor lies on the mesh, in words and by rank."""
    return {
        "axes": entry["axes"],
        "pieces": pieces(entry["axes"], picture.mesh),
        "dims": dimensions(entry["axes"], len(entry["shape"])),
        "shape": entry["shape"],
        "local": entry["local_shape"],
        "dtype": entry["dtype"],
        "grad_sum": entry.get("grad_sum", []),
        "states": states(entry["axes"], "", picture.plan, _stages(entry, picture)),
        **shares(entry, picture.plan),
    }


def _stages(entry: Mapping[str, Any], picture: Picture) -> str:
    """On which ranks along a pipeline's axis a tensor is."""
    pipeline = picture.plan.get("pipeline")
    if not pipeline:
        return ""
    ranks = sorted({pipeline["stages"][s]["rank"] for s in entry["stages"]})
    return "on " + " and ".join(f"{pipeline['axis']} {rank}" for rank in ranks)


def _drawn(picture: Picture) -> Iterator[_Drawn]:
    for module in modules(picture.root):
        for row in _own_rows(module):
            for weight in row.weights:
                path = f"{module.path}.{weight.name}" if module.path else weight.name
                yield _Drawn(module, row.line, path, weight.full_name)


def _own_rows(module: Module) -> Iterator[Row]:
    for item in module.items:
        match item:
            case Compute():
                yield from item.rows
            case Exchange():
                yield item.row
            case Module():
                pass


def _place(name: str, drawn: list[_Drawn]) -> _Drawn | None:
    """Where a tensor is read: under its own name, or by a module that stands for several."""
    return next((d for d in drawn if d.name == name), None) or next(
        (d for d in drawn if stands_for(d.path, name)), None
    )
