"""Which rows go to which expert, and which ranks hold the experts.

Every token chooses `topk` experts, so it has that many slots. `route` orders the slots by expert: a row is a slot in
that order. Along an axis each rank holds an equal, contiguous block of the experts, rank r of n those from
r * experts / n on.

The counts come to the host once for each routing. Nothing here has a gradient.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from graphpar.runtime.axis import Axis


@dataclass(frozen=True, eq=False)
class Exchange:
    """How rows go to the ranks that hold their experts; the way back is the same with both sides swapped."""

    send: list[int]  # rows that go to each rank, on the host
    receive: list[int]  # rows that come from each rank, on the host
    received: Tensor  # [ranks, own experts] int64: rows that come from each rank for each expert
    order: Tensor | None  # [rows] row by expert -> row as it came; None where both are the same
    place: Tensor | None  # its inverse


@dataclass(frozen=True, eq=False)
class Routing:
    """Where each row comes from, and how many rows each expert has of those that this rank holds now.

    `order`, `token` and `place` speak of the rows that `dispatch` makes, whatever rows are held now.
    """

    shape: tuple[int, ...]  # of what was chosen: (*tokens, topk)
    order: Tensor  # [dispatched rows] int64: row -> flat slot
    token: Tensor  # [dispatched rows] int64: row -> flat token
    place: Tensor  # [slots] int64: slot -> row; of a slot that was not kept, a number past the last row
    counts: Tensor  # [experts held now] int64, on the device
    rows: int  # rows held now
    first: int = 0  # the dispatched row that is the first of those held now; after `own_counts`
    exchange: Exchange | None = None  # after `exchange_counts`
    known: list[int] | None = None  # the counts on the host, if they have been taken there

    @property
    def experts(self) -> int:
        """How many experts' rows this rank holds now."""
        return len(self.counts)

    @property
    def topk(self) -> int:
        """Slots of each token."""
        return self.shape[-1]

    @cached_property
    def sizes(self) -> list[int]:
        """The counts on the host. Raises ValueError if they leave out a row."""
        return checked(self.counts.tolist(), self.rows) if self.known is None else self.known

    @cached_property
    def ends(self) -> Tensor:
        """[experts held now] int32: the row past the last of each expert."""
        return self.counts.cumsum(0, dtype=torch.int32)


def checked(sizes: list[int], rows: int) -> list[int]:
    """The sizes themselves; raises ValueError if they are not those of all the rows."""
    if sum(sizes) != rows:
        held = f"{len(sizes)} experts have {sum(sizes)} rows of {rows}"
        raise ValueError(f"{held}: some expert's id lies outside of 0 to {len(sizes) - 1}")
    return sizes


def route(chosen: Tensor, *, experts: int, kept: Tensor | None = None) -> Routing:
    """chosen [*tokens, topk], ids of experts -> their rows by expert, for one expert by token, then by slot.

    Slots where `kept` [*tokens, topk] is False get no row; how many do is a number that the host waits for.
    Raises ValueError for an id outside of 0 to experts - 1; on a GPU that is an assertion of the device.
    """
    flat = chosen.detach().reshape(-1).long()
    rows = flat.numel()
    if kept is not None:
        flat = torch.where(kept.reshape(-1), flat, experts)
        rows = int(kept.sum())
    by_expert, order = flat.sort(stable=True)
    place = _inverse(order)
    bounds = torch.searchsorted(by_expert, torch.arange(experts + 1, device=flat.device))
    order = order[:rows]
    token = order if chosen.shape[-1] == 1 else order.div(chosen.shape[-1], rounding_mode="floor")
    routing = Routing(tuple(chosen.shape), order, token, place, bounds.diff(), rows)
    _check_ids(routing)
    return routing


def _check_ids(routing: Routing) -> None:
    """An id outside of the experts is in nobody's count. Where the host can see the counts for nothing, it looks."""
    if routing.counts.is_cpu:
        _ = routing.sizes
    else:
        torch._assert_async(  # pyright: ignore[reportPrivateUsage]  (the only one that does not wait)
            routing.counts.sum() == routing.rows, "an expert's id lies outside of the experts"
        )


def exchange_counts(routing: Routing, axis: Axis) -> Routing:
    """Rows cut by tokens -> rows cut by experts: what `to_experts` will move.

    One all-to-all of int64 [experts]; then the host waits for the counts of both sides.
    Raises ValueError if the experts do not divide.
    """
    if axis.size == 1:
        return routing
    own = experts_each(routing, axis)
    received = axis.all_to_all(routing.counts, 0, 0).view(axis.size, own)
    both = torch.stack((routing.counts.view(axis.size, own), received)).tolist()
    send, receive = ([sum(counts) for counts in side] for side in both)
    checked([n for counts in both[0] for n in counts], routing.rows)
    order = None if own == 1 else _by_expert(both[1], torch.arange(sum(receive), device=received.device))
    place = None if order is None else _inverse(order)
    exchange = Exchange(send, receive, received, order, place)
    sizes = [sum(counts) for counts in zip(*both[1], strict=True)]
    return replace(routing, counts=received.sum(0), rows=sum(receive), exchange=exchange, known=sizes)


def experts_each(routing: Routing, axis: Axis) -> int:
    """How many of the experts each rank of the axis holds. Raises ValueError if they do not divide."""
    if routing.experts % axis.size:
        raise ValueError(f"{routing.experts} experts cannot be cut evenly into {axis.size} ranks of {axis.name}")
    return routing.experts // axis.size


def _by_expert(received: list[list[int]], row: Tensor) -> Tensor:
    """received [ranks][experts], of rows that came rank by rank: the order by expert, then by rank."""
    blocks = row.split([rows for of_rank in received for rows in of_rank])
    experts = len(received[0])
    return torch.cat([block for expert in range(experts) for block in blocks[expert::experts]])


def _inverse(order: Tensor) -> Tensor:
    """Of a permutation."""
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


def own_counts(routing: Routing, axis: Axis) -> Routing:
    """For tokens that every rank of the axis holds whole: the rows of this rank's experts.

    No communication; the host waits for the counts. Raises ValueError if the experts do not divide.
    """
    if axis.size == 1:
        return routing
    own = experts_each(routing, axis)
    start = axis.rank * own
    sizes = routing.sizes[start : start + own]
    counts = routing.counts[start : start + own]
    return replace(routing, counts=counts, rows=sum(sizes), first=sum(routing.sizes[:start]), known=sizes)


def rows_of(tensor: Tensor, rows: int, what: str) -> Tensor:
    """The tensor itself; raises ValueError unless it has that many rows."""
    if tensor.shape[0] != rows:
        raise ValueError(f"{what} has {tensor.shape[0]} rows, but its routing {rows}")
    return tensor


def exchange_of(routing: Routing) -> Exchange:
    """The exchange of a routing. Raises ValueError if its counts were never exchanged."""
    if routing.exchange is None:
        raise ValueError("rows move between experts' ranks by the routing that exchange_counts returns")
    return routing.exchange
