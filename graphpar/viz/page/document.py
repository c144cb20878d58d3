"""Everything that a page shows, as one document: the numbers are made here, and scripts only place them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from graphpar.explain.memory import by_place, spell
from graphpar.viz.colours import GREY, colours
from graphpar.viz.heading import Heading
from graphpar.viz.page.collectives import collectives
from graphpar.viz.page.lines import ends, lines, nodes
from graphpar.viz.page.modules import OVERVIEW, pictures, texts, tree
from graphpar.viz.page.states import values
from graphpar.viz.page.tensors import tensors
from graphpar.viz.picture import Exchange, Picture
from graphpar.viz.schedule import ESTIMATE, schedule, timeline_of
from graphpar.viz.sizes import facts

STORED = ("parameters", "gradients", "moments", "buffers")


def document(picture: Picture, heading: Heading, text: str) -> dict[str, Any]:
    """The document of a build whose model.py is `text`."""
    colour = colours(picture.mesh)
    every = pictures(picture)
    return {
        "model": heading.model,
        "source": heading.source,
        "ranks": heading.ranks,
        "facts": list(heading.facts),
        "mesh": [{"axis": axis, "ranks": ranks, "colour": colour[axis]} for axis, ranks in heading.mesh],
        "layout": [{"rule": rule, "colour": next((colour[a] for a in axes), GREY)} for rule, axes in heading.layout],
        "overview": OVERVIEW,
        "tree": tree(picture.root),
        "pictures": texts(every, heading),
        "nodes": nodes(picture),
        "ends": ends(every.values()),
        "exchanges": {exchange.id: _exchange(exchange, picture, heading) for _, exchange in picture.exchanges()},
        "lines": lines(picture),
        "program": text,
        "quoted": _quoted(picture.plan),
        "tensors": tensors(picture),
        "collectives": collectives(picture, heading.size),
        "memory": _memory(picture),
        "schedule": _schedule(picture),
    }


def _quoted(plan: Mapping[str, Any]) -> dict[str, Any]:
    """The source's functions by file, the file first that most lines come from; none of a build that has none."""
    files = Counter(line["where"].rpartition(":")[0] for line in plan.get("lines", {}).values())
    return dict(sorted(plan.get("quoted", {}).items(), key=lambda entry: -files[entry[0]]))


def _exchange(exchange: Exchange, picture: Picture, heading: Heading) -> dict[str, Any]:
    """A collective; in the forward pass it may do nothing."""
    kind = exchange.forward or f"{exchange.backward} in backward"
    inside = f" inside {exchange.inside}" if exchange.inside else ""
    return {
        "title": f"{kind} over {exchange.axis}{inside}",
        "facts": list(facts(exchange, heading.each)),
        "values": values(exchange.row.axes, exchange.row.pending, picture.plan),
    }


def _memory(picture: Picture) -> dict[str, Any]:
    """Bytes of each kind at each place along a pipeline, and the unit that they are drawn in."""
    held = by_place(picture.plan)
    pipeline = picture.plan.get("pipeline")
    names = [f"{pipeline['axis']} {i}" for i in range(len(held))] if pipeline else ["every rank"]
    power = max(0, (max(memory.total for memory in held).bit_length() - 1) // 10)
    return {
        "unit": ("B", "KiB", "MiB", "GiB", "TiB")[power],
        "bytes": 1024**power,
        "kinds": list(STORED),
        "places": [
            {"name": name, "stored": [getattr(m, kind) for kind in STORED], "total": m.total,
             "said": [spell(getattr(m, kind)) for kind in STORED], "total_said": spell(m.total)}
            for name, m in zip(names, held, strict=True)
        ],
    }  # fmt: skip


def _schedule(picture: Picture) -> dict[str, Any] | None:
    """The picture of a step and its actions, in the order in which their boxes stand in it."""
    drawn, found = schedule(picture.plan), timeline_of(picture.plan)
    if drawn is None or found is None:
        return None
    times, _ = found
    ranks = sorted({run.rank for run in times.runs})
    return {
        "svg": drawn,
        "note": f"When each rank does what, {ESTIMATE}.",
        "axis": picture.plan["pipeline"]["axis"],
        "ranks": ranks,
        "runs": [
            {"rank": rank, "action": str(run.action), "start": run.start, "end": run.end}
            for rank in ranks
            for run in times.of(rank)
        ],
    }
