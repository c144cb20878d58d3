"""A picture as one self-contained HTML page: nested modules, statements and collectives, and two tables.

It needs no graphviz, no script and no network, so it is also what there is to look at where `dot` is not installed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

from graphpar.explain.memory import spell
from graphpar.viz.colours import GREY, colours, pieces
from graphpar.viz.heading import Heading
from graphpar.viz.picture import Compute, Exchange, Item, Module, Picture, Row, Value, Weight, shape, spelled
from graphpar.viz.schedule import ESTIMATE, schedule
from graphpar.viz.sizes import amount


def page(picture: Picture, heading: Heading) -> str:
    """The page. The same picture gives the same bytes."""
    return "\n".join(_Writer(picture, heading).lines()) + "\n"


class _Writer:
    def __init__(self, picture: Picture, heading: Heading) -> None:
        self.picture = picture
        self.heading = heading
        self.size = heading.size
        self.colours = colours(picture.mesh)

    def lines(self) -> Iterator[str]:
        yield "<!doctype html>"
        style = files("graphpar.viz").joinpath("page.css").read_text(encoding="utf-8")
        yield f'<html lang="en"><head><meta charset="utf-8"><title>{escape(self.heading.model)}</title>'
        yield f"<style>\n{style}</style></head><body>"
        yield from self.title()
        yield f'<div class="value">{" ".join(map(self.value, self.picture.inputs))}</div>'
        yield from self.items(self.picture.root.items)
        yield f'<div class="value">{self.value(self.picture.result)}</div>'
        yield from self.gradients()
        yield from self.schedule()
        yield from self.collectives()
        yield from self.parameters()
        yield "</body></html>"

    def title(self) -> Iterator[str]:
        yield f'<h1>{escape(self.heading.model)}</h1><p class="grey">{escape(self.heading.source)}</p>'
        chips = "".join(
            f'<span class="chip" style="background:{self.colours[a]}">{a} = {n}</span>' for a, n in self.heading.mesh
        )
        yield f"<p>{chips}{self.heading.ranks} ranks</p>"
        rules = "".join(
            f'<code style="color:{self.colour(axes)}">{escape(rule)}</code>' for rule, axes in self.heading.layout
        )
        yield f'<p class="rules">{rules}</p>'
        yield f'<ul class="facts">{"".join(f"<li>{escape(fact)}</li>" for fact in self.heading.facts)}</ul>'

    # ------------------------------------------------------------ the program

    def items(self, items: Iterable[Item]) -> Iterator[str]:
        for item in items:
            match item:
                case Compute():
                    yield f'<table class="steps">{"".join(self.row(row) for row in item.rows)}</table>'
                case Exchange():
                    yield self.exchange(item)
                case Module():
                    yield from self.module(item)

    def module(self, module: Module) -> Iterator[str]:
        members = f'<span class="times">{escape(module.members)}</span>' if module.members else ""
        name = f'<b>{escape(module.path)}</b> <span class="grey">{escape(module.cls)}</span>{members}'
        yield f"<section><header>{name}</header>"
        yield from self.items(module.items)
        yield "</section>"

    def row(self, row: Row) -> str:
        title = f' <span class="grey">{escape(row.title)}</span>' if row.title else ""
        code = f'<code style="padding-left:{2 * row.depth}em">{escape(row.code)}</code>{title}'
        first = f'<tr><td class="line">{row.line}</td><td>{code}</td><td>{self.axes(row.axes, row.pending)}</td></tr>'
        return first + "".join(self.weight(weight, row.depth) for weight in row.weights)

    def weight(self, weight: Weight, depth: int) -> str:
        sizes = spelled(weight.here) + (f" of {spelled(weight.whole)}" if weight.here != weight.whole else "")
        name = f'<code style="padding-left:{2 * depth + 2}em">{escape(weight.name)}</code>'
        return f'<tr class="weight"><td></td><td>{name} {sizes}</td><td>{self.axes(weight.axes, "")}</td></tr>'

    def exchange(self, exchange: Exchange) -> str:
        kind = f"<b>{exchange.forward}</b>" if exchange.forward else f"<b>{exchange.backward}</b> in backward"
        lines = [f"{kind} over <b>{exchange.axis}</b>{f' inside {exchange.inside}' if exchange.inside else ''}"]
        if exchange.inside:
            lines.append(f"<code>{escape(exchange.row.code)}</code>")
            lines += [f"<code>  {escape(w.name)}  {escape(w.axes)}</code>" for w in exchange.row.weights]
        if exchange.forward and exchange.forward_elements:
            again = ", and again in the backward pass" if exchange.twice else ""
            lines.append(f"{amount(exchange.forward_elements, exchange.width, self.size)} from each rank{again}")
        if exchange.backward and exchange.backward_elements:
            word = f"backward: {exchange.backward}, " if exchange.forward else ""
            lines.append(f"{word}{amount(exchange.backward_elements, exchange.width, self.size)} from each rank")
        lines.append(escape(exchange.why))
        return _call(self.background(exchange.axis), lines, silent=exchange.forward is None)

    def value(self, value: Value) -> str:
        return f"<span><b>{escape(value.name)}</b> {self.axes(value.axes, value.pending)}</span>"

    def gradients(self) -> Iterator[str]:
        for sums in self.heading.gradients:
            times = f"{sums.count} times " if sums.count > 1 else ""
            words = [
                f"<b>{sums.kind}</b> over <b>{sums.axis}</b>",
                f"gradients after backward: {times}{spell(sums.bytes)} from each rank",
            ]
            yield _call(self.background(sums.axis), words)

    def schedule(self) -> Iterator[str]:
        if drawn := schedule(self.picture.plan):
            yield "<h2>Schedule of a step</h2>"
            yield f'<p class="grey">when each rank does what, {ESTIMATE}</p>'
            inline = re.sub(r' xmlns="[^"]*"', "", drawn, count=1)  # a page knows what <svg> is
            yield f'<div class="schedule">{inline.rstrip()}</div>'

    # ------------------------------------------------------------ tables

    def collectives(self) -> Iterator[str]:
        yield "<h2>Collectives, in forward order</h2>"
        yield '<table class="list"><tr><th>module</th><th>forward</th><th>backward</th><th>over</th><th>why</th></tr>'
        for module, exchange in self.picture.exchanges():
            cells = (
                module.path or module.cls,
                exchange.forward or "",
                exchange.backward or "",
                exchange.axis,
                exchange.reason,
            )
            mono, *rest = map(escape, cells)
            times = f" {module.members}" if module.members else ""
            yield f'<tr><td class="mono">{mono}{times}</td>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        yield "</table>"

    def parameters(self) -> Iterator[str]:
        yield "<h2>Parameters</h2>"
        titles = ("name", "axes", "whole", "on a rank", "gradient summed over")
        yield f'<table class="list"><tr>{"".join(f"<th>{t}</th>" for t in titles)}</tr>'
        for name, entry in _alike(self.picture.plan["parameters"]).items():
            sums = " ".join(entry["grad_sum"])
            yield (
                f'<tr><td class="mono">{escape(name)}</td><td>{self.axes(entry["axes"], "")}</td>'
                f"<td>{spelled(entry['shape'])}</td><td>{spelled(entry['local_shape'])}</td><td>{sums}</td></tr>"
            )
        yield "</table>"

    # ------------------------------------------------------------ text

    def axes(self, axes: str, pending: str) -> str:
        parts = (
            f'<b style="color:{self.colours[axis]}">{escape(part)}</b>' if axis else escape(part)
            for part, axis in pieces(shape(axes, pending), self.picture.mesh)
        )
        return f'<span class="axes">{"".join(parts)}</span>'

    def colour(self, axes: Iterable[str]) -> str:
        return next((self.colours[a] for a in axes), GREY)

    def background(self, axes: str) -> str:
        found = [self.colours.get(a, GREY) for a in axes.split()]
        return found[0] if len(found) == 1 else f"linear-gradient(90deg, {', '.join(found)})"


def _call(background: str, lines: Iterable[str], *, silent: bool = False) -> str:
    body = "<br>".join(lines)
    if silent:
        return f'<div class="call silent" style="color:{background}">{body}</div>'
    return f'<div class="call" style="background:{background}">{body}</div>'


def _alike(parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Parameters whose names differ in a number only as one, with a star for it, where all else is the same."""
    groups: dict[str, list[str]] = {}
    for name in parameters:
        groups.setdefault(re.sub(r"\.\d+\.", ".*.", name), []).append(name)
    found: dict[str, Mapping[str, Any]] = {}
    for star, names in groups.items():
        first = parameters[names[0]]
        same = len(names) > 1 and all(parameters[n] == first for n in names)
        found |= {f"{star}  × {len(names)}": first} if same else {n: parameters[n] for n in names}
    return found
