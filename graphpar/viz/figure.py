"""`graphpar visualize BUILD --figure KIND`: figures for reports, by matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpar.check.folder import read_build
from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.colours import GREY, INK, RULE
from graphpar.viz.schedule import schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("memory", "schedule", "loss")
FORMATS = ("svg", "png", "pdf")
DPI = 200
LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": INK,
    "svg.hashsalt": "graphpar",  # or the names inside of a file would be others each time
}
UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}


def draw_figure(build: Path, kind: str, outputs: Sequence[Path] = (), metrics: Path | None = None) -> tuple[Path, ...]:
    """Draw one of KINDS into files, by default into KIND.svg in the build.

    `metrics` is the file that a run of train.py wrote, for its losses. Raises GraphparError if there is nothing to draw
    or if matplotlib is not installed.
    """
    for output in outputs:
        _require_known(output)
    _, plan = read_build(build)
    draw = _drawing(kind, build, plan, metrics)
    found = tuple(outputs) or (build / f"{kind}.svg",)
    for output in found:
        output.parent.mkdir(parents=True, exist_ok=True)
        if kind == "schedule" and output.suffix == ".svg":
            output.write_text(schedule(plan) or "", encoding="utf-8")
        else:
            _save(draw, output)
    return found


def _drawing(kind: str, build: Path, plan: dict[str, Any], metrics: Path | None) -> Callable[[Figure], Axes]:
    """What draws a figure, once all that it needs has been read."""
    from graphpar.viz.figure_loss import loss
    from graphpar.viz.figure_memory import memory
    from graphpar.viz.figure_schedule import gantt_figure

    match kind:
        case "memory":
            return memory(plan)
        case "schedule":
            return gantt_figure(build, plan)
        case _:
            return loss(build, plan, metrics)


def _save(draw: Callable[[Figure], Axes], output: Path) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        message = "figures are drawn by matplotlib, which is not installed"
        raise GraphparError(
            Diagnostic("no-matplotlib", None, message, fix="pip install 'graphpar[train]'", kind="check")
        ) from error
    kind = output.suffix.removeprefix(".")
    with matplotlib.rc_context(LOOK):
        figure = Figure(layout="constrained")
        draw(figure)
        figure.savefig(output, dpi=DPI, metadata=UNDATED[kind])


def _require_known(output: Path) -> None:
    if output.suffix.removeprefix(".") not in FORMATS:
        message = f"`{output.name}` does not say which kind of figure to draw"
        fix = f"end it in {' '.join(f'.{s}' for s in FORMATS)}"
        raise GraphparError(Diagnostic("unknown-picture", None, message, fix=fix))
