"""The losses of a run, from the metrics that train.py writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.colours import AXES, RULE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METRICS = Path("run") / "metrics.jsonl"  # where train.py writes it unless it is told another folder
Curve = tuple[list[float], list[float]]


def loss(build: Path, plan: Mapping[str, Any], metrics: Path | None) -> Callable[[Figure], Axes]:
    """The curves of a run. Raises GraphparError if there is no run, or none that got to a step."""
    path = metrics or METRICS
    lines = _read(path, build, plan)
    training, held_out = _curve(lines, "loss"), _curve(lines, "held_out_loss")

    def draw(figure: Figure) -> Axes:
        figure.set_size_inches(7, 4)
        axes = figure.add_subplot(xlabel="step", ylabel="loss", title=f"{plan['source']['model']}: {path}")
        axes.plot(*training, color=AXES[0], linewidth=1.2, label="training")
        if held_out[0]:
            axes.plot(*held_out, "o-", color=AXES[1], markersize=4, linewidth=1, label="held out")
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.legend(frameon=False)
        return axes

    return draw


def _read(path: Path, build: Path, plan: Mapping[str, Any]) -> list[dict[str, float]]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise GraphparError(_no_run(f"{path} cannot be read", build, plan, str(error))) from error
    if not any("loss" in line for line in lines):
        raise GraphparError(_no_run(f"{path} has no step in it", build, plan))
    return lines


def _no_run(message: str, build: Path, plan: Mapping[str, Any], *why: str) -> Diagnostic:
    ranks = prod(plan["mesh"].values())
    fix = (
        f"torchrun --standalone --nproc-per-node {ranks} {build / 'train.py'} --data TEXT --out run\n"
        f"graphpar visualize {build} --figure loss --metrics run/metrics.jsonl"
    )
    return Diagnostic("no-run", None, message, why=why, fix=fix, kind="check")


def _curve(lines: list[dict[str, float]], key: str) -> Curve:
    found = [(line["step"], line[key]) for line in lines if key in line]
    return [step for step, _ in found], [value for _, value in found]
