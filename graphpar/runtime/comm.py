"""What a group of ranks can do together, and how torch.distributed does it.

Tensors go in contiguous or not and come back contiguous and new: no collective changes its operand, except
`start_all_reduce`. Every wait ends after the timeout that the process group was made with.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.distributed import ProcessGroup, ReduceOp, Work
from torch.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    ReduceScatterOptions,
)

Reduction = Literal["sum", "max"]
MESSAGE = 0x6770  # the tag of what `send` sends


class Handle(Protocol):
    """A collective that has been started."""

    def wait(self) -> object:
        """Return when the result is in place."""


class Communicator(Protocol):
    """The collectives of one group. `rank` is this process's place in the group."""

    size: int
    rank: int

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """The sum or maximum over the group, the same bits on every rank."""
        ...

    def start_all_reduce(self, x: Tensor) -> Handle:
        """Sum x in place; it must be contiguous and left alone until the handle has been waited for."""
        ...

    def all_gather(self, x: Tensor) -> Tensor:
        """[d, ..] -> [size * d, ..], in rank order."""
        ...

    def reduce_scatter(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [d, ..], the sum of everyone's part for this rank."""
        ...

    def all_to_all(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [size * d, ..], part i from rank i."""
        ...

    def all_to_all_rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """[sum(send), ..] -> [sum(receive), ..]; `send[i]` rows go to rank i, none is allowed."""
        ...

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank `source`; on the others x gives shape and dtype."""
        ...

    def send(self, x: Tensor, to: int) -> Handle:
        """Start to send x, contiguous, to rank `to`; x is left alone until the handle has been waited for."""
        ...

    def receive(self, x: Tensor, source: int) -> Handle:
        """Start to fill x, contiguous, with what rank `source` sends: its k-th message meets the k-th `receive`."""
        ...

    def barrier(self) -> None:
        """Return when every rank is here."""


class Alone:
    """A group of one: nothing to do, nothing to copy."""

    size = 1
    rank = 0

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """X itself."""
        del op
        return x

    def start_all_reduce(self, x: Tensor) -> Handle:
        """Nothing to wait for."""
        del x
        return Done()

    def all_gather(self, x: Tensor) -> Tensor:
        """X itself."""
        return x

    def reduce_scatter(self, parts: Tensor) -> Tensor:
        """The only part."""
        return parts

    def all_to_all(self, parts: Tensor) -> Tensor:
        """The parts themselves."""
        return parts

    def all_to_all_rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """X itself."""
        del send, receive
        return x

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """X itself."""
        del source
        return x

    def send(self, x: Tensor, to: int) -> Handle:
        """There is no other rank: raises ValueError."""
        raise ValueError(f"a group of one has no rank {to} to send to")

    def receive(self, x: Tensor, source: int) -> Handle:
        """There is no other rank: raises ValueError."""
        raise ValueError(f"a group of one has no rank {source} to receive from")

    def barrier(self) -> None:
        """Return at once."""


class Done:
    """The handle of a collective that has nothing left to do."""

    def wait(self) -> None:
        """Return at once."""


def add(parts: Sequence[Tensor]) -> Tensor:
    """The sum of two or more tensors in their order; below 32 bits it is rounded once, at the end."""
    if parts[0].is_floating_point() and parts[0].element_size() < 4:
        return torch.stack(list(parts)).sum(0)
    total = parts[0] + parts[1]
    for part in parts[2:]:
        total += part
    return total


def _reduce_options(op: ReduceOp.RedOpType, *, later: bool = False) -> AllreduceOptions:
    options = AllreduceOptions()
    options.reduceOp = op  # pyright: ignore[reportAttributeAccessIssue]
    options.asyncOp = later
    return options


def _finish(work: Work | None) -> None:
    """Wait; a back end that already made the current stream wait returns no work."""
    if work is not None:
        work.wait()


class Group:
    """A torch process group of any back end.

    It calls the group's own methods: the functions of torch.distributed build fresh options and check arguments
    on each call, which costs 4 to 5 microseconds of the CPU's time per collective.
    """

    def __init__(self, group: ProcessGroup) -> None:
        self.size = group.size()
        self.rank = group.rank()
        self._group = group
        self._all_reduce = {"sum": _reduce_options(ReduceOp.SUM), "max": _reduce_options(ReduceOp.MAX)}
        self._start = _reduce_options(ReduceOp.SUM, later=True)
        self._gather = AllgatherOptions()
        self._scatter = ReduceScatterOptions()
        self._exchange = AllToAllOptions()
        self._gather.asyncOp = self._scatter.asyncOp = self._exchange.asyncOp = False

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """The sum or maximum over the group, the same bits on every rank."""
        out = x.clone(memory_format=torch.contiguous_format)
        _finish(self._group.allreduce([out], self._all_reduce[op]))
        return out

    def start_all_reduce(self, x: Tensor) -> Handle:
        """Sum x in place, beside whatever this rank does next."""
        return self._group.allreduce([x], self._start)

    def all_gather(self, x: Tensor) -> Tensor:
        """[d, ..] -> [size * d, ..], in rank order."""
        out = x.new_empty((self.size * x.shape[0], *x.shape[1:]))
        _finish(self._group.all_gather_single(out, x.contiguous(), self._gather))
        return out

    def reduce_scatter(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [d, ..], the sum of everyone's part for this rank."""
        out = parts.new_empty((parts.shape[0] // self.size, *parts.shape[1:]))
        _finish(self._group.reduce_scatter_single(out, parts.contiguous(), self._scatter))
        return out

    def all_to_all(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [size * d, ..], part i from rank i."""
        out = torch.empty_like(parts, memory_format=torch.contiguous_format)
        _finish(self._group.all_to_all_single(out, parts.contiguous(), [], [], self._exchange))
        return out

    def all_to_all_rows(self, x: Tensor, send: Sequence[int], receive: Sequence[int]) -> Tensor:
        """[sum(send), ..] -> [sum(receive), ..]; `send[i]` rows go to rank i, none is allowed."""
        out = x.new_empty((sum(receive), *x.shape[1:]))
        _finish(self._group.all_to_all_single(out, x.contiguous(), list(receive), list(send), self._exchange))
        return out

    def broadcast(self, x: Tensor, source: int = 0) -> Tensor:
        """The tensor of rank `source`; on the others x gives shape and dtype."""
        out = x.clone(memory_format=torch.contiguous_format)
        options = BroadcastOptions()
        options.rootRank = source
        options.asyncOp = False
        _finish(self._group.broadcast([out], options))
        return out

    def send(self, x: Tensor, to: int) -> Handle:
        """Start to send x to rank `to`."""
        return self._group.send([x], to, MESSAGE)

    def receive(self, x: Tensor, source: int) -> Handle:
        """Start to fill x with what rank `source` sends."""
        return self._group.recv([x], source, MESSAGE)

    def barrier(self) -> None:
        """Return when every rank is here."""
        options = BarrierOptions()
        options.asyncOp = False
        _finish(self._group.barrier(options))


SMALL = 128 << 10  # bytes; measured with 2 and 4 ranks on one host
SMALL_PAIR = 1 << 20  # up to here one message is quicker than two of half the size
OURS = 0x6772  # the tag of what collectives send


class GlooGroup(Group):
    """A Gloo group, which is quickest when most of its work is an all-to-all.

    Gloo's own reduce-scatter is an all-reduce that throws most of its result away, and its all-reduce takes many
    rounds. One exchange and a local sum take half to a fifth of the time: always for the reduce-scatter, and for
    the all-reduce and all-gather as long as the tensor is small. Sums are then taken in rank order.

    Two ranks send each other what the other needs. That takes half of the time again, and for large tensors as long
    as Gloo's all-reduce, which would want a copy to work on.
    """

    def all_reduce(self, x: Tensor, op: Reduction = "sum") -> Tensor:
        """The sum or maximum over the group, the same bits on every rank."""
        if self.size == 2:
            return self._all_reduce_pair(x.contiguous(), torch.add if op == "sum" else torch.maximum)
        if x.nbytes > SMALL:
            return super().all_reduce(x, op)
        parts = self.all_gather(x.reshape(1, -1))
        total = add(parts.unbind()) if op == "sum" else parts.amax(0)
        return total.view(x.shape)

    def all_gather(self, x: Tensor) -> Tensor:
        """[d, ..] -> [size * d, ..], in rank order."""
        if self.size == 2:
            out = x.new_empty((2, *x.shape))
            out[self.rank] = x
            self._swap(out[self.rank], out[1 - self.rank])
            return out.flatten(0, 1)
        if x.nbytes > SMALL:
            return super().all_gather(x)
        return self.all_to_all(torch.cat([x] * self.size))

    def reduce_scatter(self, parts: Tensor) -> Tensor:
        """[size * d, ..] -> [d, ..], the sum of everyone's part for this rank, in rank order."""
        if self.size == 2:
            halves = parts.contiguous().chunk(2)
            theirs = torch.empty_like(halves[0])
            self._swap(halves[1 - self.rank], theirs)
            return theirs.add_(halves[self.rank])
        return add(self.all_to_all(parts).chunk(self.size))

    def _all_reduce_pair(self, x: Tensor, fold: Callable[..., Tensor]) -> Tensor:
        out = torch.empty_like(x)
        if x.nbytes <= SMALL_PAIR:
            self._swap(x, out)
            return fold(out, x, out=out)
        halves, sums = x.view(-1).chunk(2), out.view(-1).chunk(2)
        own = sums[self.rank]
        self._swap(halves[1 - self.rank], own)
        fold(own, halves[self.rank], out=own)
        self._swap(own, sums[1 - self.rank])
        return out

    def _swap(self, mine: Tensor, theirs: Tensor) -> None:
        """Send one contiguous tensor to the other of two ranks, and receive what it sends."""
        other = 1 - self.rank
        received = self._group.recv([theirs], other, OURS)
        sent = self._group.send([mine], other, OURS)
        _finish(received)
        _finish(sent)
