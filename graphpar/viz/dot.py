"""A picture as graphviz DOT: modules are clusters, statements rows, collectives coloured by mesh axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from graphpar.explain.experts import where
from graphpar.explain.memory import spell
from graphpar.viz.colours import FAINT, GREY, INK, KINDS, LEVELS, PAPER, REGION, RULE, colours, kind_of, pieces
from graphpar.viz.heading import Heading
from graphpar.viz.picture import Compute, Exchange, Item, Module, Picture, Row, Value, Weight, alike, shape, spelled
from graphpar.viz.sizes import facts

CODE = 76  # characters of a statement that are shown
INDENT = 4  # of a module that is written into its caller
SANS = "Helvetica,Arial,sans-serif"
MONO = "monospace"

GRAPH = f'fontname="{SANS}" bgcolor="{PAPER}" rankdir=TB nodesep=0.3 ranksep=0.22 pad=0.3 labelloc=t labeljust=l'
NODE = f'fontname="{SANS}" fontsize=10 fontcolor="{INK}" shape=box color="{RULE}" penwidth=1 margin=0'
EDGE = f'color="{GREY}" penwidth=1.1 arrowsize=0.6'
TABLE = f"BORDER='1' CELLBORDER='0' CELLSPACING='0' CELLPADDING='2' COLOR='{RULE}'"
CLUSTER = f'style="rounded,filled" color="{RULE}" margin=12 labeljust=l'


def dot(picture: Picture, heading: Heading) -> str:
    """The DOT text, with every statement. The same picture gives the same text."""
    return "\n".join(Drawing(picture, heading).lines()) + "\n"


class Drawing:
    """The lines of a DOT text."""

    def __init__(self, picture: Picture, heading: Heading) -> None:
        self.picture = picture
        self.heading = heading
        self.colours = colours(picture.mesh)
        rows = list(picture.root.rows())  # all tables are as wide as the widest, so that the columns line up
        self.code = min(CODE, max((len(r.code) + INDENT * r.depth for r in rows), default=0))
        self.shape = max((len(shape(r.axes, r.pending)) for r in rows), default=0)

    def lines(self) -> Iterator[str]:
        yield "digraph build {"
        yield f"  graph [{GRAPH} label={self.title()}]"
        yield f"  node [{NODE}]"
        yield f"  edge [{EDGE}]"
        for value in self.picture.inputs:
            yield self.value(value)
        yield from self.items(self.picture.root.items, 1)
        yield self.value(self.picture.result)
        yield from self.gradients()
        yield from self.edges()
        yield "}"

    def edges(self) -> Iterator[str]:
        """The arrows between nodes."""
        yield from dict.fromkeys(f"  {edge.tail} -> {edge.head}" for edge in self.picture.edges)

    # ------------------------------------------------------------ nodes

    def items(self, items: Iterable[Item], depth: int) -> Iterator[str]:
        indent = "  " * depth
        for item in items:
            match item:
                case Compute():
                    yield f'{indent}{item.id} [style=filled fillcolor="{PAPER}" shape=plain label={self.compute(item)}]'
                case Exchange():
                    yield f"{indent}{item.id} [{self.exchange(item)}]"
                case Module():
                    level = LEVELS[min(depth, len(LEVELS)) - 1]
                    yield f"{indent}subgraph cluster_{item.id} {{"
                    ground = self.ground(item) or level
                    yield f'{indent}  graph [{CLUSTER} fillcolor="{ground}" label={self.module(item)}]'
                    yield from self.items(item.items, depth + 1)
                    yield f"{indent}}}"

    def module(self, module: Module) -> str:
        """What stands above a cluster."""
        path = f"<FONT POINT-SIZE='11'><B>{escape(module.path)}</B></FONT>"
        cls = f"<FONT POINT-SIZE='11' COLOR='{GREY}'>{escape(module.cls)}</FONT>"
        members = f"   <FONT POINT-SIZE='12'><B>{escape(module.members)}</B></FONT>" if module.members else ""
        experts = "; ".join(dict.fromkeys(where(entry) for entry in self.experts(module)))
        more = f"   <FONT POINT-SIZE='10' COLOR='{INK}'>{escape(experts)}</FONT>" if experts else ""
        return f"<{path}   {cls}{members}{more}>"

    def ground(self, module: Module) -> str | None:
        """What a cluster is filled with, if not as its depth says."""
        return REGION if any(alike(entry["module"]) == alike(module.path) for entry in self.experts(module)) else None

    def experts(self, module: Module) -> list[Mapping[str, Any]]:
        """The mixtures of experts in a module, and in none of the clusters within it."""
        inner = [alike(item.path) for item in module.items if isinstance(item, Module)]
        found = [e for e in self.picture.plan.get("experts", ()) if _within(alike(e["module"]), alike(module.path))]
        return [e for e in found if not any(_within(alike(e["module"]), path) for path in inner)]

    def value(self, value: Value) -> str:
        words = f"<B>{escape(value.name)}</B>  {self.axes(value.axes, value.pending)}"
        label = f"<<TABLE BORDER='0' CELLPADDING='4'><TR><TD>{words}</TD></TR></TABLE>>"
        return f'  {value.id} [style="rounded,filled" fillcolor="{LEVELS[1]}" label={label}]'

    def compute(self, compute: Compute) -> str:
        rows = "".join(self.row(row) for row in compute.rows)
        return f"<<TABLE {TABLE}>{rows}</TABLE>>"

    def row(self, row: Row) -> str:
        indent = INDENT * row.depth
        text = " " * indent + short(row.code, CODE - indent)
        code = mono(f"{row.line:>4} ", FAINT) + " " + mono(text.ljust(self.code - len(row.title)), INK)
        title = f" {sans(row.title, GREY)}" if row.title else ""
        first = cells(f"{code}{title}", self.axes(row.axes, row.pending, self.shape), pointed(row.line))
        return first + "".join(self.weight(w, indent) for w in row.weights)

    def weight(self, weight: Weight, indent: int) -> str:
        sizes = spelled(weight.here) + (f"  of  {spelled(weight.whole)}" if weight.here != weight.whole else "")
        name = mono(" " * (9 + indent) + weight.name, GREY)
        return cells(f"{name}  {sans(sizes, FAINT)}", self.axes(weight.axes, ""))

    def exchange(self, exchange: Exchange) -> str:
        axes, silent = exchange.axis.split(), exchange.forward is None
        kind = exchange.forward or exchange.backward or ""
        ink = kind_of(kind) if silent else PAPER
        more = f"  inside {exchange.inside}" if exchange.inside else ""
        lines = [headline(f"{kind} in backward" if silent else kind, axes, more, ink)]
        if exchange.inside:
            lines.append(mono(short(exchange.row.code, CODE), ink))
            lines += [mono(f"  {w.name}  {w.axes}", ink) for w in exchange.row.weights]
        lines += [sans(fact, ink) for fact in self.facts(exchange)]
        return self.pill(kind, lines, silent=silent)

    def facts(self, exchange: Exchange) -> Iterable[str]:
        """What a collective says below its kind."""
        return facts(exchange, self.heading.each)

    def gradients(self) -> Iterator[str]:
        """The sums over the mesh that follow the last backward."""
        last = self.picture.result.id
        for number, sums in enumerate(self.heading.gradients, start=1):
            axes = sums.axis.split()
            times = f"{sums.count} times, " if sums.count > 1 else ""
            fact = f"gradients, after backward: {times}{spell(sums.bytes)} from each rank"
            label = [headline(sums.kind, axes, "", PAPER), sans(fact, PAPER)]
            yield f"  sum{number} [{self.pill(sums.kind, label)}]"
            yield f"  {last} -> sum{number} [style=dashed]"
            last = f"sum{number}"

    def pill(self, kind: str, lines: Iterable[str], *, silent: bool = False) -> str:
        """The attributes of a node for a collective; a silent one communicates in backward only."""
        colour = kind_of(kind)
        style, fill = ("rounded,filled,dashed", PAPER) if silent else ("rounded,filled", colour)
        rows = "".join(f"<TR><TD ALIGN='LEFT'>{line}</TD></TR>" for line in lines)
        label = f"<<TABLE BORDER='0' CELLPADDING='1' CELLSPACING='0'>{rows}</TABLE>>"
        return f'style="{style}" fillcolor="{fill}" color="{colour}" margin="0.12,0.05" label={label}'

    # ------------------------------------------------------------ text

    def axes(self, axes: str, pending: str, width: int = 0) -> str:
        parts = pieces(shape(axes, pending).ljust(width), self.picture.mesh)
        return "".join(mono(part, self.colours[axis] if axis else GREY, bold=axis is not None) for part, axis in parts)

    def title(self) -> str:
        heading = self.heading
        mesh = "     ".join(
            f"<FONT COLOR='{self.colours[axis]}'>■ <B>{axis} = {ranks}</B></FONT>" for axis, ranks in heading.mesh
        )
        rules = "   ".join(
            f"<FONT FACE='{MONO}' COLOR='{self.colours[axes[0]] if axes else GREY}'><B>{escape(rule)}</B></FONT>"
            for rule, axes in heading.layout
        )
        model = f"<FONT POINT-SIZE='20'><B>{escape(heading.model)}</B></FONT>"
        rows = [
            f"{model}   <FONT COLOR='{GREY}'>{escape(heading.source)}</FONT>",
            f"<FONT POINT-SIZE='13'>{mesh}     {heading.ranks} ranks</FONT>",
            *([self.legend()] if self.kinds() else []),
            *([f"<FONT POINT-SIZE='11'>{rules}</FONT>"] if rules else []),  # dot takes no empty text
            *(f"<FONT POINT-SIZE='11' COLOR='{GREY}'>{escape(fact)}</FONT>" for fact in heading.facts),
            "",
        ]
        table = "".join(f"<TR><TD ALIGN='LEFT'>{row}</TD></TR>" for row in rows)
        return f"<<TABLE BORDER='0' CELLPADDING='2' CELLSPACING='0'>{table}</TABLE>>"

    def kinds(self) -> list[str]:
        """The kinds of collectives in the picture."""
        drawn = [e.forward or e.backward or "" for _, e in self.picture.exchanges()]
        drawn += [sums.kind for sums in self.heading.gradients]
        return [kind for kind in KINDS if any(d.startswith(kind) for d in drawn)]

    def legend(self) -> str:
        found = "   ".join(f"<FONT COLOR='{KINDS[kind]}'>● {kind}</FONT>" for kind in self.kinds())
        silent = any(e.forward is None for _, e in self.picture.exchanges())
        dashed = f"   <FONT COLOR='{GREY}'>dashed: in the backward pass only</FONT>" if silent else ""
        return f"<FONT POINT-SIZE='11'>{found}{dashed}</FONT>"


def _within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.") or not outer


def headline(kind: str, axes: Iterable[str], more: str, colour: str) -> str:
    """The first line of a collective. Its blanks do not break: browsers drop others between bold and plain text."""
    words = f"<B>{kind}</B> over <B>{' '.join(axes)}</B>{more}".replace(" ", "&#160;")
    return f"<FONT POINT-SIZE='12' COLOR='{colour}'>{words}</FONT>"


def cells(left: str, right: str, more: str = "") -> str:
    return f"<TR><TD ALIGN='LEFT'{more}>{left}</TD><TD ALIGN='LEFT'{more}>{right} </TD></TR>"


def pointed(line: int) -> str:
    """What a cell has so that an SVG tells its line to who points at it."""
    return f" ID='line{line}' TITLE='line {line} of model.py'"


def short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def mono(text: str, colour: str, *, bold: bool = False) -> str:
    words = escape(text, quote=False).replace(" ", "&#160;")
    inner = f"<B>{words}</B>" if bold else words
    return f"<FONT FACE='{MONO}' POINT-SIZE='9' COLOR='{colour}'>{inner}</FONT>"


def sans(text: str, colour: str) -> str:
    return f"<FONT POINT-SIZE='9' COLOR='{colour}'>{escape(text, quote=False)}</FONT>"
