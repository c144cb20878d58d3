"""What a rank stores, as stacked bars: one for the ranks at each place of a pipeline, and one for a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from graphpar.explain.memory import Memory, by_place, spell, unsplit
from graphpar.viz.colours import GREY, MEMORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 0.01  # between a bar and its number, of the longest bar


def memory(plan: Mapping[str, Any]) -> Callable[[Figure], Axes]:
    """The bars of a plan."""
    bars = bars_of(plan)

    def draw(figure: Figure) -> Axes:
        figure.set_size_inches(7, 1.3 + 0.42 * len(bars))
        axes = figure.add_subplot(title=f"Memory of a rank: {plan['source']['model']} by {plan['source']['spec_file']}")
        most = max(held.total for held in bars.values()) or 1
        rows = range(len(bars))
        left = [0.0] * len(bars)
        for part, colour in MEMORY.items():
            sizes = [getattr(held, part) / most for held in bars.values()]
            if any(sizes):
                axes.barh(rows, sizes, left=left, color=colour, height=0.62, label=part)
            left = [a + b for a, b in zip(left, sizes, strict=True)]
        for row, end, held in zip(rows, left, bars.values(), strict=True):
            axes.text(end + GAP, row, spell(held.total), va="center")
        axes.set_yticks(rows, list(bars))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.12)
        axes.set_xticks([])
        axes.spines["bottom"].set_visible(False)
        axes.set_xlabel("moments are AdamW's; activations come on top", color=GREY, loc="left", fontsize=9)
        figure.legend(loc="outside lower left", ncols=len(MEMORY), frameon=False)
        return axes

    return draw


def bars_of(plan: Mapping[str, Any]) -> dict[str, Memory]:
    """What each bar stands for, and what is stored there."""
    ranks = prod(plan["mesh"].values())
    pipeline = plan["pipeline"]
    if pipeline:
        held = {f"{pipeline['axis']} {place}": found for place, found in enumerate(by_place(plan))}
    else:
        held = {f"each of {ranks} ranks" if ranks > 1 else "the only rank": by_place(plan)[0]}
    return {**held, "one device": unsplit(plan)} if ranks > 1 else held
