"""Rows by expert in the order of the choices that they are of, each with the rank of its token.

How rows lie by expert is up to the data, and another on every number of ranks. Brought home they are as long, and lie
as, what was chosen: then those of ranks can be compared with those of one device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphpar.runtime.routing import Routing
from graphpar.runtime.shards import Place
from graphpar.verify.shapes import Shape, read_shape

_ROWS = re.compile(r"\(experts(?:@([\w+]+))? (.+?) 1/\d+\)")  # (experts@ep batch seq topk 1/8)
_PENDING = re.compile(r"partial\((.*?)\)")


@dataclass(frozen=True)
class Way:
    """The way home of a value on one rank: the routing by which its rows lie, and how they lie at home."""

    routing: Routing
    axes: tuple[str, ...]  # over which experts are cut
    shape: Shape

    @property
    def among_zeros(self) -> tuple[str, ...]:
        """The axes along which each rank has its own experts' rows at home, and zeros."""
        return self.axes if self.routing.exchange is None else ()


class Ways:
    """The routings that a rank has made, the last one for each way to cut experts."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, ...], tuple[Routing, str]] = {}

    def keep(self, routing: Routing, text: str) -> None:
        """Know a routing by the comment behind it."""
        if found := _ROWS.match(text):
            self.last[_axes(found)] = routing, found[2]

    def of(self, text: str) -> Way | None:
        """The way home of a value that lies so; None if its rows are those of no routing."""
        found = _ROWS.match(text)
        if found is None or not {(), _axes(found)} <= self.last.keys():
            return None
        routing, tokens = self.last[_axes(found)]
        if routing.exchange is not None:
            tokens = self.last[()][1]  # before they changed hands
        among_zeros = _axes(found) if routing.exchange is None else ()
        summed = _PENDING.search(text)
        pending = ", ".join((*among_zeros, *([summed[1]] if summed else [])))
        named = _PENDING.sub("", _ROWS.sub(lambda _: f"({tokens})", text, count=1)).rstrip()
        home = read_shape(f"{named}   partial({pending})" if pending else named)
        return None if home is None else Way(routing, _axes(found), home)


def _axes(found: re.Match[str]) -> tuple[str, ...]:
    return tuple(found[1].split("+")) if found[1] else ()


def brought_home(parts: Sequence[Tensor], ways: Sequence[Way], groups: Sequence[Sequence[int]]) -> list[Tensor] | None:
    """The parts of all ranks, each by choice; `groups` are the ranks along the axes that cut experts.

    None if they are not the rows that the routings speak of.
    """
    try:
        sent = _sent_back(parts, ways, groups) if ways[0].routing.exchange else list(map(_padded, parts, ways))
        return [_by_choice(rows, way.routing) for rows, way in zip(sent, ways, strict=True)]
    except (IndexError, RuntimeError, TypeError):
        return None


def _sent_back(parts: Sequence[Tensor], ways: Sequence[Way], groups: Sequence[Sequence[int]]) -> list[Tensor]:
    found = list(parts)
    for ranks in groups:
        pieces: list[Sequence[Tensor]] = []
        for rank in ranks:
            exchange = ways[rank].routing.exchange
            assert exchange is not None
            rows = parts[rank] if exchange.place is None else parts[rank].index_select(0, exchange.place)
            pieces.append(rows.split(exchange.receive))
        for i, rank in enumerate(ranks):
            found[rank] = torch.cat([piece[i] for piece in pieces])
    return found


def _padded(rows: Tensor, way: Way) -> Tensor:
    """The rows of this rank's experts among zeros."""
    out = rows.new_zeros(len(way.routing.order), *rows.shape[1:])
    out.narrow(0, way.routing.first, way.routing.rows).copy_(rows)
    return out


def _by_choice(rows: Tensor, routing: Routing) -> Tensor:
    return rows.new_zeros(len(routing.place), *rows.shape[1:]).index_copy_(0, routing.order, rows)


def grouped(places: Sequence[Place], axes: Sequence[str]) -> list[list[int]]:
    """The ranks that differ in these axes alone, for each place along the others."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(tuple(n for axis, n in place.at.items() if axis not in axes), []).append(rank)
    return list(groups.values())
