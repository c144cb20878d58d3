"""The picture that is drawn unless another is asked for: modules, what they hold, and what is communicated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

from graphpar.explain.memory import spell
from graphpar.pipeline.describe import number
from graphpar.viz.colours import FAINT, GREY, INK
from graphpar.viz.dot import TABLE, Drawing, mono, pointed, sans, short
from graphpar.viz.heading import Heading
from graphpar.viz.outline import Line, lines, outlined
from graphpar.viz.picture import Compute, Exchange, Picture, spelled
from graphpar.viz.sizes import moved

CODE = 44  # characters of a statement or a reason that are shown
FEW = 2  # statements that are shown where none has a name
_ROUTING = re.compile(r"\(experts\S* .+ 1/\d+\)")  # says which rows go where, and is none of them


def overview(picture: Picture, heading: Heading) -> str:
    """The DOT text, layers that are alike folded. The same picture gives the same text."""
    return drawn(outlined(picture), heading)


def drawn(picture: Picture, heading: Heading) -> str:
    """The DOT text of a picture that is folded already, or that shall not be."""
    return "\n".join(_Overview(picture, heading).lines()) + "\n"


class _Overview(Drawing):
    def compute(self, compute: Compute) -> str:
        named = lines(compute)
        rows = [self.line(line) for line in named]
        shown = () if named else compute.rows[:FEW]
        rows += [_row(mono(short(row.code, CODE), GREY), line=row.line) for row in shown]
        if (left := len(compute.rows) - len(named) - len(shown)) > 0:
            rows.append(_row(mono(f"and {number(left, 'more statement')}", FAINT)))
        return f"<<TABLE {TABLE}>{''.join(rows)}</TABLE>>"

    def line(self, line: Line) -> str:
        indent = "&#160;" * 3 * line.depth
        name = f"{indent}<FONT POINT-SIZE='11' COLOR='{INK}'>{escape(line.text)}</FONT>"
        what = f" {sans(line.what, GREY)}" if line.what else ""
        weight = line.weight
        if weight is None:
            return _row(f"{name}{what}", line=line.number)
        sizes = spelled(weight.here) + (f" of {spelled(weight.whole)}" if weight.here != weight.whole else "")
        return _row(f"{name}{what}", self.axes(weight.axes, ""), sans(sizes, FAINT), line=line.number)

    def facts(self, exchange: Exchange) -> Iterator[str]:
        size = self.heading.each
        sent = [
            f"{spell(moved(elements, exchange.width, size))}{word}"
            for elements, word in (
                (exchange.forward_elements, " and again in backward" if exchange.twice else ""),
                (exchange.backward_elements, f" {exchange.backward} in backward" if exchange.forward else ""),
            )
            if elements
        ]
        yield ", ".join(sent)
        yield short(exchange.reason, CODE)

    def edges(self) -> Iterator[str]:
        between: dict[tuple[str, str], list[str]] = {}
        for edge in self.picture.edges:
            between.setdefault((edge.tail, edge.head), []).append(edge.axes)
        for (tail, head), values in between.items():
            if all(_ROUTING.fullmatch(axes) for axes in values):
                yield f'  {tail} -> {head} [style=dotted color="{FAINT}" arrowsize=0.4]'
                continue
            rows = "".join(_row(self.axes(axes, "")) for axes in dict.fromkeys(values) if axes)
            label = f" [label=<<TABLE BORDER='0' CELLPADDING='0' CELLSPACING='0'>{rows}</TABLE>>]" if rows else ""
            yield f"  {tail} -> {head}{label}"


def _row(*cells: str, line: int = 0) -> str:
    more = pointed(line) if line else ""
    return "<TR>" + "".join(f"<TD ALIGN='LEFT'{more}>{cell}</TD>" for cell in cells) + "</TR>"
