"""Where simulated ranks meet: one thread per rank, no process group.

Each collective of a group is a meeting. Ranks bring their tensors; the last to come computes everyone's result and
wakes the others. The k-th collective that a rank starts in a group meets the k-th of its peers. Since all ranks live in
one process, a rank that does something else than its peers, or never comes, is found at once and named.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch import Tensor

EVERY_RANK = "every rank must run the same collectives in the same order"


class CollectiveError(RuntimeError):
    """The ranks did not run the same collectives."""


class Stopped(Exception):
    """Ends a rank because another one failed."""


@dataclass(frozen=True)
class Call:
    """What a rank asks for; those that meet must be equal."""

    kind: str
    axis: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.kind} over {self.axis} of {dtype}{list(self.shape)}"


Combine = Callable[[list[Any]], list[Tensor]]  # everyone's operand, in rank order, to everyone's result


@dataclass(eq=False)
class Meeting:
    """One collective of one group."""

    members: tuple[int, ...]
    call: Call
    brought: dict[int, Any] = field(default_factory=lambda: dict[int, Any]())
    results: dict[int, Tensor] = field(default_factory=lambda: dict[int, Tensor]())
    over: bool = False

    def absent(self) -> list[int]:
        """The ranks that have not come yet."""
        return [rank for rank in self.members if rank not in self.brought]


class Hall:
    """All meetings of a simulated world, and the first error, which ends it."""

    def __init__(self, size: int, timeout: float) -> None:
        self.size = size
        self.timeout = timeout  # seconds that a rank waits for its peers
        self.error: BaseException | None = None
        self.failed_rank = -1
        self._lock = Lock()
        self._gates = [Lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()
        self._started: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._open: dict[tuple[str, tuple[int, ...], int], Meeting] = {}
        self._waiting: dict[int, Meeting] = {}
        self._ended: set[int] = set()

    def come(
        self, rank: int, members: tuple[int, ...], call: Call, operand: Any, combine: Combine, lane: str = ""
    ) -> Meeting:
        """Bring an operand. Raises CollectiveError if this call is not that of the peers.

        The meetings of each lane are counted by themselves: messages from rank to rank do not wait for collectives.
        """
        with self._lock:
            self._stop_if_failed()
            number = self._started.get((lane, members, rank), 0)
            self._started[lane, members, rank] = number + 1
            meeting = self._open.setdefault((lane, members, number), Meeting(members, call))
            if meeting.call != call:
                first = next(iter(meeting.brought))
                raise CollectiveError(
                    f"rank {rank} called {call} where rank {first} called {meeting.call}; {EVERY_RANK}"
                )
            meeting.brought[rank] = operand
            if len(meeting.brought) == len(members):
                del self._open[lane, members, number]
                self._conclude(meeting, combine)
            return meeting

    def result(self, rank: int, meeting: Meeting) -> Tensor:
        """Wait for the others and take this rank's result."""
        with self._lock:
            self._stop_if_failed()
            if meeting.over:
                return meeting.results.pop(rank)
            self._waiting[rank] = meeting
            self._raise_if_stuck()
        woken = self._gates[rank].acquire(timeout=self.timeout)
        with self._lock:
            self._stop_if_failed()
            if meeting.over:
                if not woken:  # the last one came just as the time was up
                    self._gates[rank].acquire()
                return meeting.results.pop(rank)
            late = _ranks(meeting.absent())
            raise CollectiveError(f"rank {rank} waited {self.timeout:g} s in {meeting.call} for {late}")

    def end(self, rank: int) -> None:
        """This rank has returned. Raises CollectiveError if the others now wait for what never comes."""
        with self._lock:
            self._ended.add(rank)
            if self.error is None:
                self._raise_if_stuck()

    def fail(self, rank: int, error: BaseException) -> None:
        """End the world; only the first error counts."""
        with self._lock:
            if self.error is None:
                self.error, self.failed_rank = error, rank
            for waiting in list(self._waiting):
                del self._waiting[waiting]
                self._gates[waiting].release()

    def _conclude(self, meeting: Meeting, combine: Combine) -> None:
        with torch.no_grad():
            results = combine([meeting.brought[rank] for rank in meeting.members])
        meeting.results = dict(zip(meeting.members, results, strict=True))
        meeting.over = True
        for rank in meeting.members:
            if self._waiting.get(rank) is meeting:
                del self._waiting[rank]
                self._gates[rank].release()

    def _stop_if_failed(self) -> None:
        if self.error is not None:
            raise Stopped

    def _raise_if_stuck(self) -> None:
        if not self._waiting or len(self._waiting) + len(self._ended) < self.size:
            return
        lines = [f"rank {r} waits in {m.call} for {_ranks(m.absent())}" for r, m in sorted(self._waiting.items())]
        lines += [f"rank {r} has ended" for r in sorted(self._ended)]
        raise CollectiveError(f"no rank can go on: {'; '.join(lines)}; {EVERY_RANK}")


def _ranks(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
