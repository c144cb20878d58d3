"""What came of the demo: the losses, the trained weights back in the source model, and code worth a look."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BARS = "▁▂▃▄▅▆▇█"
_LAST = 10  # steps: a single step's loss depends on which text it drew


@dataclass(frozen=True)
class Losses:
    """The loss of every step, and the one over held-out text at the end."""

    steps: tuple[float, ...]
    held_out: float

    @property
    def first(self) -> float:
        """Before anything was learned."""
        return self.steps[0]

    @property
    def last(self) -> float:
        """The mean over the last steps."""
        tail = self.steps[-_LAST:]
        return sum(tail) / len(tail)

    def curve(self, width: int) -> str:
        """The losses as a line of bars."""
        count = min(width, len(self.steps))
        bounds = [round(i * len(self.steps) / count) for i in range(count + 1)]
        means = [sum(self.steps[a:b]) / (b - a) for a, b in itertools.pairwise(bounds)]
        low, high = min(means), max(means)
        step = (high - low) / (len(BARS) - 1) or 1
        return "".join(BARS[math.floor((mean - low) / step)] for mean in means)


def read_losses(metrics: Path) -> Losses:
    """The numbers of a run's metrics.jsonl."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    held_out = [line["held_out_loss"] for line in lines if "held_out_loss" in line]
    return Losses(tuple(line["loss"] for line in lines if "loss" in line), held_out[-1])


def side_by_side(first: Path, second: Path) -> list[tuple[float, float]]:
    """The losses of the first steps of two runs, from their metrics.jsonl, as long as both had the same learning rate.

    A rate acts on the losses after its step, so the first step that has another one is the last here.
    """
    runs = [
        [line for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()) if "loss" in line]
        for path in (first, second)
    ]
    found: list[tuple[float, float]] = []
    for one, other in zip(*runs, strict=False):
        found.append((one["loss"], other["loss"]))
        if one["lr"] != other["lr"]:
            break
    return found


def loss_in_source(model: Path, weights: Path, text: Path, seq: int, windows: int) -> float:
    """The held-out loss of the source model on one device, with the trained weights loaded strictly.

    It reads the windows that the ranks were evaluated on.
    """
    import torch
    from safetensors.torch import load_file

    from graphpar.runtime.data import split
    from graphpar.runtime.tokens import read_tokens
    from graphpar.sources.door import open_model

    source = open_model(str(model))
    module = source.construct().eval()
    module.load_state_dict(load_file(weights), strict=True)
    _, held_out = split(read_tokens([text], None, None), seq, 0)
    total = 0.0
    with torch.no_grad():
        for index in range(min(windows, len(held_out))):
            ids = held_out[index][0][None]
            total += float(module(input_ids=ids, labels=ids.clone()).loss)
    return total / min(windows, len(held_out))


def worth_reading(program: str, functions: Sequence[str]) -> str:
    """The shortest class of a model.py whose forward method calls all of `functions`."""
    from graphpar.viz.program import Class, Statement, read_program

    def calls(found: Class) -> set[str]:
        return {f for item in found.body if isinstance(item, Statement) for f in item.functions}

    lines = program.splitlines()
    classes = list(read_program(program).values())
    ends = [*(c.line - 1 for c in classes[1:]), len(lines)]
    texts = ["\n".join(lines[c.line - 1 : end]).rstrip() for c, end in zip(classes, ends, strict=True)]
    fitting = [t for c, t in zip(classes, texts, strict=True) if set(functions) <= calls(c)]
    return min(fitting, key=len, default="")
