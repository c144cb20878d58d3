"""What every rank knows of the others: which step they are at, whether they are alive, who failed first.

Each rank writes a sign of life to the store of the job (the one that torchrun keeps, which outlives every rank) from a
thread of its own. The first rank that fails leaves a line there, which the others find.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch.distributed as dist

_BEAT = 0.5  # seconds between two signs of life
_SILENT = 4 * _BEAT  # a rank without a sign for this long is dead
_FAILURE = "failure"


@dataclass(frozen=True)
class _Sign:
    """A sign of life."""

    step: int | None
    time: int  # nanoseconds; no two signs of a rank are equal
    place: str  # in the program, as in `model.py:41`


class Watch:
    """This rank's step, and its line to the store of the job."""

    def __init__(self) -> None:
        self.rank = int(os.environ.get("RANK", "0"))
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.timeout = float("inf")
        self.traceback = False  # whether a failure shows where it happened
        self.ending = threading.Event()
        self._step: int | None = None
        self._moved = time.monotonic()
        self._store: dist.Store | None = None

    def begin(self, *, timeout: float, traceback: bool = False) -> None:
        """Join the others. `timeout` is the longest wait for a peer, in seconds."""
        self.timeout = timeout
        self.traceback = traceback
        self._moved = time.monotonic()
        self.join()

    def join(self) -> None:
        """Come to the store of the job, where lines are left; a rank in trouble does so before `begin`."""
        if self._store is not None or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
            return  # no store that outlives a rank; the errors and timeouts of collectives are left
        store = dist.TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            timeout=timedelta(seconds=20),
            wait_for_workers=False,
        )
        # a restarted job finds the old keys in the same store
        self._store = dist.PrefixStore(f"graphpar/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)

    def at(self, step: int) -> None:
        """This rank has come to `step`, counted from 0, or is still making progress in it."""
        self._step = step
        self._moved = time.monotonic()
        self._show_life()

    def done(self) -> None:
        """This rank needs its peers no longer."""
        self.ending.set()

    @property
    def joined(self) -> bool:
        """Whether this rank and its peers know of each other."""
        return self._store is not None

    @property
    def where(self) -> str:
        """As in `rank 1, step 37`."""
        return _where(self.rank, self._step)

    @property
    def waited(self) -> float:
        """Seconds since this rank last made progress."""
        return time.monotonic() - self._moved

    def publish(self, line: str) -> str:
        """Leave `line` as the first failure of the job, unless there is one; the first one."""
        if self._store is None:
            return line
        with contextlib.suppress(dist.DistError):
            return self._store.compare_set(_FAILURE, "", line).decode()
        return line

    def first_failure(self) -> str | None:
        """The line of the rank that failed first."""
        if self._store is None:
            return None
        with contextlib.suppress(dist.DistError):
            if self._store.check([_FAILURE]):
                return self._store.get(_FAILURE).decode()
        return None

    def look_out(self, failed: Callable[[str], None], stuck: Callable[[], None]) -> None:
        """Show signs of life until the end; call `failed` when a peer has failed, `stuck` after too long a wait."""
        while not self.ending.wait(_BEAT):
            self._show_life()
            line = self.first_failure()
            if line is not None:
                return failed(line)
            # a collective that is stuck has ended itself by now; before the first step, long work is no sign of trouble
            if self._step is not None and self.waited > 2 * self.timeout:
                return stuck()
        return None

    def silent_peer(self) -> str | None:
        """As in `rank 1, step 37`: a peer that shows no sign of life. Takes two seconds to find out."""
        before = dict(self._signs())
        time.sleep(_SILENT)
        silent = [rank for rank, sign in self._signs() if sign == before.get(rank)]
        return _where(silent[0], before[silent[0]].step) if silent else None

    def elsewhere(self) -> str | None:
        """As in `rank 1, step 37 is at model.py:41`: a peer that is not where this rank is, the furthest behind."""
        mine = (-1 if self._step is None else self._step, place_of_main_thread())
        others = [(-1 if sign.step is None else sign.step, sign.place, rank) for rank, sign in self._signs()]
        behind = sorted(other for other in others if other[:2] != mine and other[0] <= mine[0])
        if not behind:
            return None
        step, place, rank = behind[0]
        return _where(rank, None if step < 0 else step) + (f" is at {place}" if place else "")

    def _show_life(self) -> None:
        if self._store is not None:
            sign = _Sign(self._step, time.monotonic_ns(), place_of_main_thread())
            with contextlib.suppress(dist.DistError):
                self._store.set(f"life/{self.rank}", json.dumps(astuple(sign)))

    def _signs(self) -> Iterator[tuple[int, _Sign]]:
        """Each peer's last sign of life."""
        for rank in range(self.world):
            key = f"life/{rank}"
            with contextlib.suppress(dist.DistError):
                if rank != self.rank and self._store is not None and self._store.check([key]):
                    yield rank, _Sign(*json.loads(self._store.get(key)))


def place_of_main_thread() -> str:
    """As in `model.py:41`: where in the program's own folder this process is; empty where nowhere."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # pyright: ignore[reportPrivateUsage]
    return place_of(traceback.walk_stack(frame)) if frame else ""


def place_of(frames: Iterable[tuple[FrameType, int]]) -> str:
    """As in `model.py:41`: the first of `frames`, innermost first, that is in the program's own folder."""
    home = str(Path(sys.argv[0]).resolve().parent)
    for frame, line in frames:
        folder, _, name = frame.f_code.co_filename.rpartition(os.sep)
        if folder == home:
            return f"{name}:{line}"
    return ""


def _where(rank: int, step: int | None) -> str:
    return f"rank {rank}" if step is None else f"rank {rank}, step {step}"
