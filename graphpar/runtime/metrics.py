"""What a run shows and keeps: a progress bar or plain lines, metrics.jsonl, and a picture of the loss."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from graphpar.runtime.say import say
from graphpar.runtime.settings import Settings

_LINES = 20  # plain lines over a whole run


class _Display(Protocol):
    def show(self, done: int, text: str) -> None:
        """`done` steps are done; `text` holds the numbers of the last one."""

    def note(self, text: str) -> None:
        """A line that stays."""

    def stop(self) -> None:
        """Give the terminal back."""


class Metrics:
    """The numbers of a run, shown and written by rank 0; every rank calls it alike.

    `metrics.jsonl` has one line per step (step, loss, grad_norm, lr, tokens_per_second, seconds) and one per evaluation
    (step, held_out_loss). A resumed run drops the lines of the steps that it does again.
    """

    def __init__(self, settings: Settings, *, rank: int, first: int) -> None:
        self.path = settings.out / "metrics.jsonl"
        self.tokens = settings.tokens
        self._file: TextIO | None = None
        self._display: _Display = _Silence()
        self._began = self._last = time.perf_counter()
        if rank == 0:
            settings.out.mkdir(parents=True, exist_ok=True)
            _keep_before(self.path, first)
            self._file = self.path.open("a")
            self._display = _display(first, settings.steps)

    def step(self, step: int, *, loss: float, grad_norm: float, lr: float) -> None:
        """Step `step`, counted from 0, is done."""
        now = time.perf_counter()
        rate = self.tokens / (now - self._last)
        self._last = now
        seconds = round(now - self._began, 3)
        self._write(step=step, loss=loss, grad_norm=grad_norm, lr=lr, tokens_per_second=round(rate), seconds=seconds)
        self._display.show(step + 1, f"loss {loss:.4f}  norm {grad_norm:.3f}  lr {lr:.2e}  {rate:,.0f} tokens/s")

    def held_out(self, step: int, loss: float) -> None:
        """The loss over held-out data after step `step`."""
        self._write(step=step, held_out_loss=loss)
        self._display.note(f"step {step}: held-out loss {loss:.4f}, perplexity {math.exp(min(loss, 700)):,.1f}")
        self._last = time.perf_counter()  # evaluation is no part of the next step's speed

    def note(self, text: str) -> None:
        """Something happened that the person may want to know."""
        self._display.note(text)
        self._last = time.perf_counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._display.stop()
        if self._file is not None:
            self._file.close()

    def _write(self, **numbers: float) -> None:
        if self._file is not None:
            self._file.write(json.dumps(numbers) + "\n")
            self._file.flush()


def plot(folder: Path) -> None:
    """Draw folder/loss.png from folder/metrics.jsonl, on rank 0; without matplotlib, say so."""
    if os.environ.get("RANK", "0") != "0":
        return None
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return say("no picture of the loss: matplotlib is not installed")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    figure = Figure(figsize=(7, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot(xlabel="step", ylabel="loss")
    axes.plot(*_curve(lines, "loss"), label="training", linewidth=1)
    held_out = _curve(lines, "held_out_loss")
    if held_out[0]:
        axes.plot(*held_out, "o-", label="held out", markersize=4)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "loss.png", dpi=150, metadata={"Software": None})
    return None


def _curve(lines: Iterable[dict[str, float]], key: str) -> tuple[list[float], list[float]]:
    found = [(line["step"], line[key]) for line in lines if key in line]
    return [step for step, _ in found], [value for _, value in found]


def _keep_before(path: Path, start: int) -> None:
    """Keep the lines of the steps before `start`; a last line that was cut short goes too."""
    kept: list[str] = []
    if start and path.exists():
        for line in path.read_text().splitlines():
            try:
                if json.loads(line)["step"] < start:
                    kept.append(line + "\n")
            except ValueError:
                break
    path.write_text("".join(kept))


def _display(start: int, steps: int) -> _Display:
    if not sys.stdout.isatty():
        return _Lines(steps)
    try:
        return _Bar(start, steps)
    except ImportError:
        return _Lines(steps)


class _Silence:
    def show(self, done: int, text: str) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def stop(self) -> None:
        pass


class _Lines:
    """Plain lines, for files and pipes."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.every = max(1, steps // _LINES)

    def show(self, done: int, text: str) -> None:
        if done % self.every == 0 or done == self.steps or done == 1:
            say(f"step {done - 1} of {self.steps}  {text}")

    def note(self, text: str) -> None:
        say(text)

    def stop(self) -> None:
        pass


class _Bar:
    """A progress bar on a terminal."""

    def __init__(self, start: int, steps: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns: list[Any] = [MofNCompleteColumn(), BarColumn(), TimeRemainingColumn(compact=True)]
        self.progress = Progress(*columns, TextColumn("{task.fields[text]}"))
        self.task = self.progress.add_task("", total=steps, completed=start, text="")
        self.progress.start()

    def show(self, done: int, text: str) -> None:
        self.progress.update(self.task, completed=done, text=text)

    def note(self, text: str) -> None:
        self.progress.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self.progress.stop()
