"""All ranks of a mesh in one process: the same program, one thread per rank, collectives that meet in memory.

Sums are taken in rank order, so that every rank gets the same bits. CPU only in the first place; backward runs in the
thread that asks for it, as collectives inside it need.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from graphpar.runtime.comm import Communicator, Done, Handle, Reduction, add
from graphpar.runtime.grid import count, spelled
from graphpar.runtime.meeting import Call, CollectiveError, Combine, Hall, Meeting, Stopped
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.random import Rng

T = TypeVar("T")


def simulate(
    mesh_sizes: Mapping[str, int],
    fn: Callable[[Mesh], T],
    timeout: float = 60,
    log: bool = False,
    rng: Rng = "statistical",
) -> list[T]:
    """What `fn(mesh)` returns on each rank, in rank order. With `log`, each rank's `mesh.log` records from the start.

    An error on one rank ends all of them and is raised here, with a note that names the rank. So does a rank that calls
    another collective than its peers, or waits in vain (CollectiveError). No wait is longer than `timeout` seconds.
    """
    size = count(mesh_sizes)
    hall = Hall(size, timeout)
    borrowing = threading.RLock()
    results: dict[int, T] = {}

    def run(rank: int) -> None:
        def connect(names: tuple[str, ...], every: list[tuple[int, ...]]) -> Communicator | None:
            mine = next((ranks for ranks in every if rank in ranks), None)
            return None if mine is None else SimulatedGroup(hall, " ".join(names), mine, rank)

        try:
            mesh = Mesh(mesh_sizes, rank, torch.device("cpu"), connect, rng=rng, lock=borrowing)
            mesh.log = [] if log else None
            with torch.autograd.set_multithreading_enabled(False):
                results[rank] = fn(mesh)
            hall.end(rank)
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  (raised again in the caller's thread)
            hall.fail(rank, error)

    _run_threads(run, size, hall)
    if hall.error is not None:
        hall.error.add_note(f"on rank {hall.failed_rank} of the simulated mesh {spelled(mesh_sizes)}")
        raise hall.error
    return [results[rank] for rank in range(size)]


def _run_threads(run: Callable[[int], None], size: int, hall: Hall) -> None:
    """Run each rank in a thread of its own, with an equal share of torch's threads."""
    cores = torch.get_num_threads()
    torch.set_num_threads(max(1, cores // size))
    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive() and hall.error is None:
                thread.join(0.1)
        for thread in threads:
            thread.join(5)  # one that computes without end is left behind
    except BaseException as error:
        hall.fail(-1, error)
        raise
    finally:
        torch.set_num_threads(cores)


class SimulatedGroup:
    """The group of the ranks `members`, seen by one of them."""

    def __init__(self, hall: Hall, axis: str, members: tuple[int, ...], rank: int) -> None:
        self.size = len(members)
        self.rank = members.index(rank)
        self._hall = hall
        self._axis = axis
        self._members = members
        self._number = rank

    def _come(self, kind: str, x: Tensor, combine: Combine) -> Meeting:
        call = Call(kind, self._axis, tuple(x.shape), x.dtype)
        return self._hall.come(self._number, self._members, call, x.detach().contiguous(), combine)

    def _meet(self, kind: str, x: Tensor, combine: Combine) -> Tensor:
        return self._hall.result(self._number, self._come(kind, x, combine))

    def _same(self, x: Tensor) -> list[Tensor]:
        """One copy for each member: they may change theirs."""
        return [x] + [x.clone() for _ in range(self.size - 1)]

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """The sum, in rank order, or maximum over the group."""
        if op == "max":
            return self._meet("all_reduce_max", x, lambda parts: self._same(torch.stack(parts).amax(0)))
        return self._meet("all_reduce", x, lambda parts: self._same(add(parts)))

    def start_all_reduce(self, x: Tensor) -> Handle:
        """Sum x in place by the time the handle has been waited for."""
        meeting = self._come("all_reduce", x, lambda parts: self._same(add(parts)))
        return _Coming(self._hall, self._number, meeting, x)

    def all_gather(self, x: Tensor) -> Tensor:
        """[d, ..] -> [size * d, ..], in rank order."""
        return self._meet("all_gather", x, lambda parts: self._same(torch.cat(parts)))

    def reduce_scatter(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [d, ..], the sum of everyone's part for this rank, in rank order."""

        def combine(brought: list[Tensor]) -> list[Tensor]:
            return [add(parts) for parts in zip(*(x.chunk(self.size) for x in brought), strict=True)]

        return self._meet("reduce_scatter", parts, combine)

    def all_to_all(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [size * d, ..], part i from rank i."""

        def combine(brought: list[Tensor]) -> list[Tensor]:
            return [torch.cat(parts) for parts in zip(*(x.chunk(self.size) for x in brought), strict=True)]

        return self._meet("all_to_all", parts, combine)

    def all_to_all_rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """[sum(send), ..] -> [sum(receive), ..]; `send[i]` rows go to rank i, none is allowed."""
        call = Call("all_to_all_rows", self._axis, tuple(x.shape[1:]), x.dtype)
        operand = (x.detach(), list(send), list(receive))
        meeting = self._hall.come(self._number, self._members, call, operand, self._exchange_rows)
        return self._hall.result(self._number, meeting)

    def _exchange_rows(self, brought: list[tuple[Tensor, list[int], list[int]]]) -> list[Tensor]:
        for i, (_, send, _) in enumerate(brought):
            for j, (_, _, receive) in enumerate(brought):
                if send[j] != receive[i]:
                    who = f"rank {self._members[i]} sends {send[j]} rows to rank {self._members[j]}"
                    raise CollectiveError(f"all_to_all_rows over {self._axis}: {who}, which expects {receive[i]}")
        cut = [x.split(send) for x, send, _ in brought]
        return [torch.cat([pieces[j] for pieces in cut]) for j in range(self.size)]

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank `source` of the group."""
        return self._meet("broadcast", x, lambda parts: self._same(parts[source].clone()))

    def send(self, x: Tensor, to: int) -> Handle:
        """Leave a copy of x for rank `to` of the group, and go on."""
        self._message(x.detach().clone(), self.rank, to)
        return Done()

    def receive(self, x: Tensor, source: int) -> Handle:
        """Fill x, by the time the handle has been waited for, with what rank `source` of the group left."""
        return _Coming(self._hall, self._number, self._message(x, source, self.rank), x)

    def _message(self, x: Tensor, source: int, to: int) -> Meeting:
        """A meeting of two to which the sender brings what the receiver takes."""
        members = self._members[source], self._members[to]
        call = Call("send", self._axis, tuple(x.shape), x.dtype)
        return self._hall.come(self._number, members, call, x, lambda brought: brought[:1] * 2, lane=self._axis)

    def barrier(self) -> None:
        """Return when every rank is here."""
        self._meet("barrier", torch.empty(0), lambda parts: parts)


class _Coming:
    """A sum or a message whose peers may not have come yet."""

    def __init__(self, hall: Hall, rank: int, meeting: Meeting, x: Tensor) -> None:
        self._take = lambda: x.copy_(hall.result(rank, meeting))

    def wait(self) -> None:
        """Put it in place."""
        self._take()
