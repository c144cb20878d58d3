"""A step as graphviz DOT: what was added is green, what was removed red, what it touches white."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from graphpar.viz.colours import FAINT, GREY, INK, LEVELS, MARKS, PAPER, RULE, colours, pieces
from graphpar.viz.step_boxes import Arrow, Box, Boxes, Done, Line, Room, Row, Table

SHOWN = 8  # nodes of a box that are named
ROWS = 16  # parameters of a module that are shown
WIDE = 64  # characters of a line
SANS = "Helvetica,Arial,sans-serif"
MONO = "monospace"
SIGNS = {"added": "+", "removed": "−", "changed": "~", "kept": "■"}
WORDS = {"added": "added", "removed": "removed", "changed": "changed", "kept": "stays"}
OPS = {"loop_enter": "into each layer", "loop_leave": "out of the layers", "slice_": "slice"}

GRAPH = f'fontname="{SANS}" bgcolor="{PAPER}" rankdir=TB nodesep=0.22 ranksep=0.28 pad=0.3 labelloc=t labeljust=l'
NODE = f'fontname="{SANS}" fontsize=10 fontcolor="{INK}" shape=box margin="0.08,0.04"'
CLUSTER = f'style="rounded,filled" color="{RULE}" margin=12 labeljust=l'


@dataclass(frozen=True)
class Title:
    """What stands above the picture of a step."""

    step: str
    purpose: str
    facts: tuple[str, ...]
    mesh: Mapping[str, int]


def step_dot(drawn: Boxes, title: Title) -> str:
    """The DOT text. The same step gives the same text."""
    return "\n".join(_Writer(drawn, title).lines()) + "\n"


class _Writer:
    def __init__(self, drawn: Boxes, title: Title) -> None:
        self.drawn = drawn
        self.title = title
        self.colours = colours(title.mesh)

    def lines(self) -> Iterator[str]:
        yield "digraph build {"
        yield f"  graph [{GRAPH} label={self.heading()}]"
        yield f"  node [{NODE}]"
        yield f'  edge [color="{GREY}" penwidth=1.1 arrowsize=0.6]'
        yield from self.room(self.drawn.root, 0)
        yield from map(_arrow, self.drawn.arrows)
        for first, then in pairwise(_apart(self.drawn.root)):
            yield f"  {first.id} -> {then.id} [style=invis]"  # one below the other, or the picture would be a wide row
        yield "}"

    def room(self, room: Room, depth: int) -> Iterator[str]:
        indent = "  " * (depth + 1)
        if room.path:
            fill = LEVELS[min(depth, len(LEVELS) - 1)]
            yield f'{indent}subgraph "cluster_{room.path}" {{'
            yield f'{indent}  graph [{CLUSTER} fillcolor="{fill}" label={_place(room)}]'
        for table in room.tables:
            yield f"{indent}  {table.id} [{self.table(table)}]"
        for box in room.boxes:
            yield f"{indent}  {box.id} [{self.box(box)}]"
        for inner in room.rooms:
            yield from self.room(inner, depth + bool(room.path))
        if room.path:
            yield f"{indent}}}"

    # ------------------------------------------------------------ boxes

    def box(self, box: Box) -> str:
        mark = MARKS[box.mark]
        rows = [self.head(box)]
        if box.mark == "kept":
            rows += self.named(box)
        else:
            rows += [self.line(line) for line in box.lines[:SHOWN]]
            rows += _more(len(box.lines) - SHOWN)
        rows += [_sans(part, INK) for part in _wrapped(box.why)]
        rows += [_sans(box.source, FAINT)] if box.source and box.mark != "kept" else []
        style = "rounded,filled,dashed" if box.mark == "removed" else "rounded,filled"
        width = 1 if box.mark == "kept" else 1.8
        return f'style="{style}" color="{mark.line}" fillcolor="{mark.fill}" penwidth={width} label={_stacked(rows)}'

    def head(self, box: Box) -> str:
        times = f" × {len(box.lines)}" if len(box.lines) > 1 else ""
        if box.mark != "kept":
            over = self.over(box.axis.split())
            return f"{_signed(box.mark, OPS.get(box.op, box.op), 12)}{over}{times}"
        op = f"<B>{escape(OPS.get(box.op, box.op))}</B>{times}"
        named = f"  {_sans(box.lines[0].name, GREY)}  {self.shape(box.lines[0].shape)}" if len(box.lines) == 1 else ""
        return f"<FONT COLOR='{GREY}'>{op}</FONT>{named}"

    def named(self, box: Box) -> list[str]:
        """The names of several ops that stay."""
        names = list(dict.fromkeys(line.name for line in box.lines if line.name)) if len(box.lines) > 1 else []
        return [_sans(part, GREY) for part in _wrapped(", ".join(names[:SHOWN]))] + _more(len(names) - SHOWN)

    def line(self, line: Line) -> str:
        parts = [_sans(line.name, INK)] if line.name else []
        parts += [self.shape(line.shape)]
        parts += [_sans(line.detail, MARKS["changed"].line)] if line.detail else []
        return "  ".join(parts)

    def shape(self, text: str) -> str:
        return "".join(
            f"<FONT FACE='{MONO}' POINT-SIZE='9' COLOR='{self.colours[axis] if axis else GREY}'>{escape(part)}</FONT>"
            for part, axis in pieces(text, self.title.mesh)
        )

    def over(self, axes: Iterable[str]) -> str:
        """` over tp`, in the colour of the axis."""
        words = " ".join(f"<FONT COLOR='{self.colours.get(a, INK)}'><B>{escape(a)}</B></FONT>" for a in axes)
        return f" over {words}" if words else ""

    # ------------------------------------------------------------ tables

    def table(self, table: Table) -> str:
        rows = [self.row(row) for row in table.rows[:ROWS]]
        under = [*_more(len(table.rows) - ROWS), *(_sans(part, GREY) for why in table.why for part in _wrapped(why))]
        rows += [f"<TR><TD COLSPAN='3' ALIGN='LEFT'>{text}</TD></TR>" for text in under]
        look = f"BORDER='1' CELLBORDER='0' CELLSPACING='0' CELLPADDING='2' COLOR='{RULE}' BGCOLOR='{PAPER}'"
        return f"shape=plain label=<<TABLE {look}>{''.join(rows)}</TABLE>>"

    def row(self, row: Row) -> str:
        cells = (_sans(row.name, INK), self.shape(row.shape), "   ".join(map(self.done, row.done)))
        return "<TR>" + "".join(f"<TD ALIGN='LEFT'>{cell}</TD>" for cell in cells) + "</TR>"

    def done(self, done: Done) -> str:
        """What was done to a parameter, in front of what it is done for."""
        if done.mark == "kept":
            return _sans(done.what, FAINT)
        return f"{_signed(done.mark, done.what, 10)}{self.over(done.axes)}"

    # ------------------------------------------------------------ text

    def heading(self) -> str:
        legend = "      ".join(
            f"<FONT COLOR='{MARKS[mark].line}'><B>{sign or '□'}</B></FONT> {WORDS[mark]}"
            for mark, sign in SIGNS.items()
        )
        rows = [
            f"<FONT POINT-SIZE='20'><B>{escape(self.title.step)}</B></FONT>",
            *(f"<FONT POINT-SIZE='12'>{escape(part)}</FONT>" for part in _wrapped(self.title.purpose, 2 * WIDE)),
            *(
                f"<FONT POINT-SIZE='11' COLOR='{GREY}'>{escape(part)}</FONT>"
                for fact in self.title.facts
                for part in _wrapped(fact, 2 * WIDE)
            ),
            f"<FONT POINT-SIZE='11'>{legend}      ┈ by way of ops that are not drawn</FONT>",
            "",
        ]
        table = "".join(f"<TR><TD ALIGN='LEFT'>{row}</TD></TR>" for row in rows)
        return f"<<TABLE BORDER='0' CELLPADDING='2' CELLSPACING='0'>{table}</TABLE>>"


def _arrow(arrow: Arrow) -> str:
    looks = {
        "kept": "",
        "folded": f' [style=dotted color="{FAINT}"]',
        "added": f' [color="{MARKS["added"].line}" penwidth=1.8]',
        "removed": f' [color="{MARKS["removed"].line}" style=dashed penwidth=1.4]',
        "changed": "",
    }
    return f"  {arrow.tail} -> {arrow.head}{looks[arrow.mark]}"


def _apart(room: Room) -> list[Table]:
    """The tables of modules in which there is nothing else."""
    here = [] if room.boxes else room.tables
    return [*here, *(table for inner in room.rooms for table in _apart(inner))]


def _place(room: Room) -> str:
    times = f"   <FONT POINT-SIZE='12'><B>× {room.times}</B></FONT>" if room.times > 1 else ""
    return f"<<FONT POINT-SIZE='11'><B>{escape(room.path)}</B></FONT>{times}>"


def _signed(mark: str, text: str, size: int) -> str:
    return f"<FONT POINT-SIZE='{size}' COLOR='{MARKS[mark].line}'><B>{SIGNS[mark]} {escape(text)}</B></FONT>"


def _stacked(rows: Iterable[str]) -> str:
    cells = "".join(f"<TR><TD ALIGN='LEFT'>{row}</TD></TR>" for row in rows)
    return f"<<TABLE BORDER='0' CELLPADDING='1' CELLSPACING='0'>{cells}</TABLE>>"


def _more(count: int) -> list[str]:
    return [_sans(f"and {count} more", GREY)] if count > 0 else []


def _sans(text: str, colour: str) -> str:
    return f"<FONT POINT-SIZE='10' COLOR='{colour}'>{escape(text)}</FONT>" if text else ""  # dot takes no empty text


def _wrapped(text: str, width: int = WIDE) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
