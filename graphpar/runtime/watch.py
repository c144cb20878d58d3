"""What every rank knows of the others: which step they are at, whether they are alive, who failed first.

Each rank writes a sign of life to the store of the job (the one that torchrun keeps, which outlives every rank) from a
thread of its own. The first rank that fails leaves a line there, which the others find.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import torch.distributed as dist

_BEAT = 0.5  # seconds between two signs of life
_SILENT = 4 * _BEAT  # a rank without a sign for this long is dead
_FAILURE = "failure"


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
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
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
        beat = 0
        while not self.ending.wait(_BEAT):
            beat += 1
            self._show_life(beat)
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
        return self._at(silent[0], before[silent[0]]) if silent else None

    def slowest_peer(self) -> str | None:
        """As in `rank 1, step 36`: the peer that has not come as far as this rank."""
        behind = [(step, rank, sign) for rank, sign in self._signs() if (step := _step(sign)) is not None]
        if not behind:
            return None
        step, rank, sign = min(behind)
        return self._at(rank, sign) if step < (self._step or 0) else None

    def _at(self, rank: int, sign: str) -> str:
        return _where(rank, _step(sign))

    def _show_life(self, beat: int) -> None:
        if self._store is not None:
            step = "" if self._step is None else self._step
            with contextlib.suppress(dist.DistError):
                self._store.set(f"life/{self.rank}", f"{step}:{beat}")

    def _signs(self) -> Iterator[tuple[int, str]]:
        """Each peer's last sign of life."""
        for rank in range(self.world):
            key = f"life/{rank}"
            with contextlib.suppress(dist.DistError):
                if rank != self.rank and self._store is not None and self._store.check([key]):
                    yield rank, self._store.get(key).decode()


def _step(sign: str) -> int | None:
    step, _ = sign.split(":")
    return int(step) if step else None


def _where(rank: int, step: int | None) -> str:
    return f"rank {rank}" if step is None else f"rank {rank}, step {step}"
