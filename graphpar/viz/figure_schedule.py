"""The step of a pipeline as a figure for print: what each rank does when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.colours import ACTIONS, GREY, PAPER, ink_on
from graphpar.viz.gantt import WORDS
from graphpar.viz.schedule import timeline_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ROOM = 0.012  # of a step: a box that is at least so wide is told with its microbatch


def gantt_figure(build: Path, plan: Mapping[str, Any]) -> Callable[[Figure], Axes]:
    """The boxes of a plan's schedule. Raises GraphparError if the build has no pipeline."""
    found = timeline_of(plan)
    if found is None:
        message = f"{build} has no pipeline, so its ranks do all the same at the same time"
        raise GraphparError(
            Diagnostic("no-schedule", None, message, fix="pipeline: {axis: pp}   # in the spec", kind="check")
        )
    timeline, title = found
    ranks = sorted({run.rank for run in timeline.runs})
    end = max(run.end for run in timeline.runs)

    def draw(figure: Figure) -> Axes:
        figure.set_size_inches(9, 1.3 + 0.34 * len(ranks))
        axes = figure.add_subplot(title=f"{title}, bubble {timeline.bubble:.3f}")
        kinds = [kind for kind in ACTIONS if any(run.action.kind == kind for run in timeline.runs)]
        for kind in kinds:
            runs = [run for run in timeline.runs if run.action.kind == kind]
            axes.barh(
                [run.rank for run in runs],
                [(run.end - run.start) / end for run in runs],
                left=[run.start / end for run in runs],
                height=0.8, color=ACTIONS[kind], edgecolor=PAPER, linewidth=0.5, label=WORDS[kind],
            )  # fmt: skip
        for run in timeline.runs:
            if (run.end - run.start) / end >= ROOM:
                middle = (run.start + run.end) / 2 / end
                ink = ink_on(ACTIONS[run.action.kind])
                axes.text(middle, run.rank, str(run.action.microbatch), ha="center", va="center", fontsize=7, color=ink)
        axes.set_yticks(ranks, [f"{plan['pipeline']['axis']} {rank}" for rank in ranks])
        axes.invert_yaxis()
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlabel("time of a step", color=GREY, loc="left", fontsize=9)
        figure.legend(loc="outside lower left", ncols=len(kinds), frameon=False)
        return axes

    return draw
