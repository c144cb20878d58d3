"""Wrong functions of the runtime of experts, each made from the right one.

What moves rows has nothing to do on one device. What else is wrong here is so on ranks only, which are threads: the
program for one device runs in the main one.
"""

from collections.abc import Callable
from dataclasses import replace
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from graphpar.runtime.routing import Exchange, Routing
from graphpar.runtime.shards import Place

Function = Callable[..., Any]


def on_ranks(wrong: Function) -> Callable[[Function], Function]:
    """A function that is wrong on ranks: `wrong` takes the right one, then what it is given."""

    def make(right: Function) -> Function:
        return lambda *args, **how: (
            right(*args, **how) if current_thread() is main_thread() else wrong(right, *args, **how)
        )

    return make


# Rows on their way


def no_gradient_of_tokens(right: Function) -> Function:
    """Rows that went to their experts bring no gradient back."""
    del right
    return lambda ctx, grad: (grad.new_zeros(sum(ctx.how[0].send), *grad.shape[1:]), None, None)


def no_gradient_of_experts(right: Function) -> Function:
    """Rows that came back from their experts send no gradient there."""
    del right
    return lambda ctx, grad: (grad.new_zeros(sum(ctx.how[0].receive), *grad.shape[1:]), None, None)


def unsent_to_tokens(right: Function) -> Function:
    """The gradients of rows stay with the experts."""
    del right
    return lambda ctx, grad: (_fitted(grad, sum(ctx.how[0].send)), None, None)


def unsent_to_experts(right: Function) -> Function:
    """The gradients of rows stay with the tokens."""
    del right
    return lambda ctx, grad: (_fitted(grad, sum(ctx.how[0].receive)), None, None)


def _fitted(rows: Tensor, n: int) -> Tensor:
    """As many rows as are wanted: the last ones are left out, or zeros."""
    return torch.cat((rows, rows.new_zeros(n, *rows.shape[1:])))[:n]


def unordered(right: Function) -> Function:
    """Gradients go back in the order of the experts, not in that in which the rows came."""

    def back(ctx: Any, grad: Tensor) -> Any:
        exchange, axis = ctx.how
        ctx.how = replace(exchange, place=None), axis
        return right(ctx, grad)

    return back


def rank_by_rank(right: Function) -> Function:
    """Rows stay as they came: by rank, then by expert."""
    del right
    return lambda received, row: row


def last_rank_first(right: Function) -> Function:
    """For one expert, the rows of the last rank come first."""

    def by_expert(received: list[list[int]], row: Tensor) -> Tensor:
        blocks = row.split([rows for of_rank in received for rows in of_rank])
        experts = len(received[0])
        return torch.cat([block for expert in range(experts) for block in reversed(blocks[expert::experts])])

    del right
    return by_expert


def none_to_send(right: Function) -> Function:
    """A rank that has no row to send, or to give back, does not take part."""

    def send(rows: Tensor, exchange: Exchange, axis: Any) -> Tensor:
        counts = exchange.receive if right.__name__ == "_send" else exchange.send
        return right(rows, exchange, axis) if len(rows) else rows.new_zeros(sum(counts), *rows.shape[1:])

    return send


# Routings


def _routed(change: Callable[[Routing], Routing]) -> Callable[[Function], Function]:
    """A function of rows, other operands and a routing, which gets another routing."""

    def wrong(right: Function, *args: Any, **how: Any) -> Any:
        return right(*(change(arg) if isinstance(arg, Routing) else arg for arg in args), **how)

    return on_ranks(wrong)


place_for_order = _routed(lambda routing: replace(routing, place=routing.order))


def place_for_order_everywhere(right: Function) -> Function:
    """Rows are looked up by what says of a row which slot it is."""
    return lambda rows, weights, routing: right(rows, weights, replace(routing, place=routing.order))


def _turned(routing: Routing) -> Routing:
    """The rows of each expert in reverse."""
    blocks = torch.arange(routing.rows).split(routing.counts.tolist())
    turned = torch.cat([block.flip(0) for block in blocks])
    order = routing.order[turned]
    return replace(routing, order=order, token=routing.token[turned], place=order.argsort())


turned = on_ranks(lambda right, *args, **how: _turned(right(*args, **how)))


def turned_back(right: Function) -> Function:
    """Backward takes the rows of an expert in another order than forward."""

    def backward(right: Function, ctx: Any, grad: Tensor) -> Any:
        ctx.routing = _turned(ctx.routing)
        return right(ctx, grad)

    return on_ranks(backward)(right)


def other_block(right: Function) -> Function:
    """A rank computes the rows of the next rank's experts."""
    return lambda routing, axis: right(
        routing, SimpleNamespace(size=axis.size, rank=(axis.rank + 1) % axis.size, name=axis.name)
    )


def row_before(right: Function) -> Function:
    """A rank's rows begin one row too early."""

    def own(routing: Routing, axis: Any) -> Routing:
        found = right(routing, axis)
        return replace(found, first=max(found.first - 1, 0))

    return own


def _exchanged(change: Callable[[Exchange], Exchange]) -> Callable[[Function], Function]:
    def make(right: Function) -> Function:
        def exchange(routing: Routing, axis: Any) -> Routing:
            found = right(routing, axis)
            return found if found.exchange is None else replace(found, exchange=change(found.exchange))

        return exchange

    return make


other_peer = _exchanged(lambda e: replace(e, receive=e.receive[::-1]))
same_both_ways = _exchanged(lambda e: replace(e, receive=e.send))


def counts_of_other_experts(right: Function) -> Function:
    """As many rows come as do come, but they are counted for the wrong experts."""

    def exchange(routing: Routing, axis: Any) -> Routing:
        found = right(routing, axis)
        if found.exchange is None:
            return found
        return replace(found, counts=found.counts.flip(0), known=found.sizes[::-1])

    return exchange


# Experts


def scaled_matrices(factor: float) -> Callable[[Function], Function]:
    """The gradients of the experts' matrices, times a factor."""

    def backward(right: Function, ctx: Any, grad: Tensor) -> Any:
        to_rows, to_w, none = right(ctx, grad)
        return to_rows, to_w * factor, none

    return on_ranks(backward)


def never_written(right: Function) -> Function:
    """The gradient of an expert without rows is what was in memory."""

    def backward(right: Function, ctx: Any, grad: Tensor) -> Any:
        to_rows, to_w, none = right(ctx, grad)
        empty = torch.tensor([n == 0 for n in ctx.sizes])
        return to_rows, to_w.masked_fill(empty.view(-1, 1, 1), 1.0), none

    return on_ranks(backward)(right)


def without_rows(right: Function) -> Function:
    """Experts of a rank without rows are left out of the graph."""

    def linear(right: Function, rows: Tensor, w: Tensor, routing: Routing, **how: Any) -> Tensor:
        found = right(rows, w, routing, **how)
        return found if len(rows) else found.detach()

    return on_ranks(linear)(right)


def mean_bias(right: Function) -> Function:
    """A bias has the mean of its rows' gradients."""

    def sums(right: Function, rows: Tensor, routing: Routing) -> Tensor:
        return right(rows, routing) / routing.counts.clamp(min=1).unsqueeze(1)

    return on_ranks(sums)(right)


def no_weights(right: Function) -> Function:
    """What rows are weighted by gets no gradient."""

    def backward(right: Function, ctx: Any, grad: Tensor) -> Any:
        to_rows, to_weights, none = right(ctx, grad)
        return to_rows, torch.zeros_like(to_weights), none

    return on_ranks(backward)(right)


def no_weights_everywhere(right: Function) -> Function:
    """The same, on one device as well."""

    def backward(ctx: Any, grad: Tensor) -> Any:
        to_rows, to_weights, none = right(ctx, grad)
        return to_rows, torch.zeros_like(to_weights), none

    return backward


def slots_of_others(right: Function) -> Function:
    """The gradients of weights are those of the other slot."""

    def backward(right: Function, ctx: Any, grad: Tensor) -> Any:
        to_rows, to_weights, none = right(ctx, grad)
        return to_rows, to_weights.flip(-1), none

    return on_ranks(backward)(right)


def swapped_experts(*shapes: tuple[int, ...]) -> Callable[[Function], Function]:
    """Stacks of these shapes are cut for the next rank of the experts' axis."""

    def make(right: Function) -> Function:
        def cut(full: Tensor, dims: Any, place: Place) -> Tensor:
            if tuple(full.shape) in shapes:
                axis = "ep" if "ep" in place.at else "dp"
                place = replace(place, at={**place.at, axis: (place.at[axis] + 1) % place.sizes[axis]})
            return right(full, dims, place)

        return cut

    return make
