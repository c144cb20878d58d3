"""The steps of the demo: commands that a person could have typed, each bounded in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_PATIENCE = 20  # seconds that a stopped step has to end its processes

# What a person types, and how this very installation starts it.
PROGRAMS = {
    "graphpar": (sys.executable, "-m", "graphpar"),
    "torchrun": (sys.executable, "-m", "torch.distributed.run"),
}


@dataclass(frozen=True)
class Step:
    """A command as it is typed, and the seconds it may take."""

    words: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        return " ".join(self.words)


class StepError(RuntimeError):
    """A step failed, or took longer than it may."""


def run(step: Step) -> float:
    """Run a step on this terminal. How many seconds it took. Raises StepError."""
    start = time.monotonic()
    program, *arguments = step.words
    process = subprocess.Popen(
        [*PROGRAMS[program], *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},  # one thread for each rank
        process_group=0,  # so that it can be stopped with all that it started
    )
    try:
        code = process.wait(step.seconds)
    except subprocess.TimeoutExpired:
        raise StepError(f"`{step}` took more than {step.seconds:.0f} seconds and was stopped") from None
    finally:
        _stop(process)
    if code:
        raise StepError(f"`{step}` failed with exit code {code}")
    return time.monotonic() - start


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a process that still runs; torchrun ends its ranks when it is asked to end."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                continue


def torchrun(ranks: int, *words: str) -> Sequence[str]:
    """The words that start a program on `ranks` ranks of this machine."""
    return ("torchrun", "--standalone", "--nproc-per-node", str(ranks), *words)
