"""The step of a pipeline as a picture: what each rank does when, as one SVG without scripts or fonts of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10
from statistics import median

from graphpar.schedules.clock import Run, Timeline
from graphpar.viz.colours import ACTIONS, GREY, INK, LEVELS, PAPER, ink_on, lighter

WORDS = {"F": "forward", "B": "backward", "I": "gradient of inputs", "W": "gradients of weights"}
BOX = 18  # width of a usual action, where the whole fits
NARROWEST, WIDEST = 720, 1800  # of the part with the boxes
ROW, GAP = 26, 6
LEFT, RIGHT, TOP, BOTTOM = 64, 84, 68, 46
LETTER = 6.6  # mean width of a letter at size 12
SHADE = 0.3  # so much lighter is the last of a rank's stages than its first


def gantt(timeline: Timeline, title: str, axis: str) -> str:
    """The picture of a timeline, as the text of an SVG file. The same timeline gives the same bytes.

    A row for each place along the mesh axis, and a box for each action, with its microbatch where there is room. Times
    are told in units of the longest forward.
    """
    return "\n".join(_Drawing(timeline, title, axis).lines()) + "\n"


class _Drawing:
    def __init__(self, timeline: Timeline, title: str, along: str) -> None:
        self.timeline = timeline
        self.title = title
        self.along = along
        self.ranks = sorted({run.rank for run in timeline.runs})
        self.stages = {r: sorted({run.action.stage for run in timeline.of(r)}) for r in self.ranks}
        self.most = max(len(stages) for stages in self.stages.values())
        lengths = [run.end - run.start for run in timeline.runs]
        self.end = max(run.end for run in timeline.runs)
        self.unit = max([r.end - r.start for r in timeline.runs if r.action.kind == "F"], default=max(lengths)) or 1.0
        wanted = BOX * self.end / (median(lengths) or self.unit)
        self.plot = min(max(wanted, NARROWEST), WIDEST)
        self.width = round(LEFT + self.plot + RIGHT)
        self.bottom = TOP + len(self.ranks) * (ROW + GAP)
        self.height = self.bottom + BOTTOM

    def lines(self) -> Iterator[str]:
        size = f'width="{self.width}" height="{self.height}" viewBox="0 0 {self.width} {self.height}"'
        font = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} {font}>'
        yield f"<title>{escape(self.title)}</title>"
        yield f'<rect class="paper" width="{self.width}" height="{self.height}" fill="{PAPER}"/>'
        yield _text(LEFT, 24, self.title, size=16)
        yield from self.legend()
        yield from self.axis()
        for row, rank in enumerate(self.ranks):
            yield from self.row(TOP + row * (ROW + GAP), rank)
        yield "</svg>"

    # ------------------------------------------------------------ around the boxes

    def legend(self) -> Iterator[str]:
        bubble = f"bubble {self.timeline.bubble:.3f}"
        yield _text(LEFT, 48, bubble, weight="bold")
        x = LEFT + _wide(bubble) + 24
        used = {run.action.kind for run in self.timeline.runs}
        for kind, colour in ACTIONS.items():
            if kind in used:
                yield f'<rect x="{x:.1f}" y="38" width="12" height="12" fill="{colour}"/>'
                yield _text(x + 18, 48, WORDS[kind], fill=GREY)
                x += 18 + _wide(WORDS[kind]) + 18
        if self.most > 1:
            for turn in range(self.most):
                yield f'<rect x="{x:.1f}" y="38" width="12" height="12" fill="{self.shade("F", turn)}"/>'
                x += 14
            yield _text(x + 4, 48, "a rank's stages in turn", fill=GREY)

    def axis(self) -> Iterator[str]:
        step = _round(self.end / self.unit * 60 / self.plot)
        count = floor(self.end / self.unit / step + 1e-9)
        for tick in range(count + 1):
            x = self.x(tick * step * self.unit)
            yield f'<line x1="{x:.1f}" y1="{TOP - 4}" x2="{x:.1f}" y2="{self.bottom}" stroke="{LEVELS[2]}"/>'
            yield _text(x, self.bottom + 16, f"{tick * step:g}", fill=GREY, anchor="middle")
        words = "time, in units of the longest forward"
        yield _text(LEFT + self.plot / 2, self.bottom + 36, words, fill=GREY, anchor="middle")

    # ------------------------------------------------------------ the boxes

    def row(self, y: int, rank: int) -> Iterator[str]:
        runs = self.timeline.of(rank)
        idle = 1 - sum(run.end - run.start for run in runs) / self.timeline.cost
        yield f'<rect x="{LEFT}" y="{y}" width="{self.plot:.1f}" height="{ROW}" fill="{LEVELS[1]}" fill-opacity="0.6"/>'
        yield _text(LEFT - 10, y + ROW / 2 + 4, f"{self.along} {rank}", anchor="end")
        yield _text(LEFT + self.plot + 10, y + ROW / 2 + 4, f"{max(idle, 0):.0%} idle", fill=GREY)
        for run in runs:
            yield from self.box(y, run)

    def box(self, y: int, run: Run) -> Iterator[str]:
        stage, kind, microbatch = run.action
        x, width = self.x(run.start), self.x(run.end) - self.x(run.start)
        colour = self.shade(kind, self.stages[run.rank].index(stage))
        start, end = run.start / self.unit, run.end / self.unit
        said = f"{run.action}: {WORDS[kind]} of stage {stage}, microbatch {microbatch}, from {start:.2f} to {end:.2f}"
        yield f'<g><title>{said}</title><rect class="action" x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW}"'
        yield f'fill="{colour}" stroke="{PAPER}" stroke-width="{min(1, width / 8):.2f}"/>'
        if _wide(str(microbatch)) + 3 <= width:
            yield _text(x + width / 2, y + ROW / 2 + 4, str(microbatch), fill=ink_on(colour), anchor="middle")
        yield "</g>"

    def shade(self, kind: str, turn: int) -> str:
        return lighter(ACTIONS[kind], SHADE * turn / max(self.most - 1, 1))

    def x(self, time: float) -> float:
        return LEFT + self.plot * time / self.end


def _wide(text: str) -> float:
    return LETTER * len(text)


def _round(least: float) -> float:
    """1, 2 or 5 times a power of ten: the first that is not below `least`."""
    power = 10.0 ** floor(log10(least))
    choices: Sequence[float] = (power, 2 * power, 5 * power, 10 * power)
    return next(c for c in choices if c >= least * (1 - 1e-9))


def _text(
    x: float, y: float, text: str, *, fill: str = INK, anchor: str = "start", size: int = 12, weight: str = "normal"
) -> str:
    look = f'fill="{fill}"' + (f' text-anchor="{anchor}"' if anchor != "start" else "")
    look += (f' font-size="{size}"' if size != 12 else "") + (f' font-weight="{weight}"' if weight != "normal" else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
