"""Rows of tokens on their way to the experts and back; every move is written with its transpose.

    function       from -> to                    forward              backward
    dispatch       tokens -> rows by expert      gather               gather, sum over topk
    to_experts     S by tokens -> S by experts   all-to-all           all-to-all
    to_tokens      S by experts -> S by tokens   all-to-all           all-to-all
    own_rows       R -> S                        this rank's rows     zero-pad
    all_rows       S -> P                        zero-pad             this rank's rows
    combine        rows by expert -> tokens      gather, sum          gather

What is communicated depends on no data: a rank without a row takes part with none, forward and backward.
Along an axis of size 1 a move returns its operand. `routing.py` says what a row is.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.axis import Axis
from graphpar.runtime.once import once
from graphpar.runtime.routing import Exchange, Routing, exchange_of, rows_of


def _by_slot(rows: Tensor, routing: Routing) -> Tensor:
    """[dispatched rows, ..] -> [tokens, topk, ..]: zeros for a slot that was not kept."""
    order, place = routing.order, routing.place
    if len(order) == len(place):
        slots = rows.index_select(0, place)
    else:
        slots = rows.new_zeros((len(place), *rows.shape[1:])).index_copy_(0, order, rows)
    return slots.view(-1, routing.topk, *rows.shape[1:])


def dispatch(x: Tensor, routing: Routing) -> Tensor:
    """x [*tokens, d] -> rows [(tokens topk), d], as `route` ordered them."""
    flat = x.reshape(-1, x.shape[-1])
    rows_of(flat, len(routing.place) // routing.topk, "the operand of dispatch")
    rows: Tensor = _Dispatch.apply(flat, routing)
    return rows


class _Dispatch(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, routing: Routing) -> Tensor:
        ctx.routing = routing
        return x.index_select(0, routing.token)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        slots = _by_slot(grad, ctx.routing)
        return slots.squeeze(1) if ctx.routing.topk == 1 else slots.sum(1), None


def combine(rows: Tensor, weights: Tensor | None, routing: Routing) -> Tensor:
    """rows in `dispatch` order, weights [*tokens, topk] -> [*tokens, d]: each token's sum of weight * row.

    Without weights the plain sum. A slot that was not kept adds nothing.
    """
    rows_of(rows, len(routing.order), "the operand of combine")
    if weights is None:
        y: Tensor = _Sum.apply(rows, routing)
    else:
        y = _Combine.apply(rows, weights.reshape(-1, routing.topk), routing)
    return y.view(*routing.shape[:-1], rows.shape[-1])


class _Sum(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, routing: Routing) -> Tensor:
        ctx.routing = routing
        return _by_slot(rows, routing).sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.index_select(0, ctx.routing.token), None


class _Combine(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: Tensor, routing: Routing) -> Tensor:
        ctx.routing = routing
        ctx.save_for_backward(rows, weights)
        slots, factors = _by_slot(rows, routing), weights.unsqueeze(-1)
        wide = torch.promote_types(rows.dtype, weights.dtype)
        return (slots.mul_(factors) if rows.dtype == wide else slots * factors).sum(1)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, weights = ctx.saved_tensors
        routing: Routing = ctx.routing
        grad = grad.index_select(0, routing.token)
        along = None
        if ctx.needs_input_grad[1]:
            along = _by_slot((grad * rows).sum(-1), routing).to(weights.dtype)
        factors = weights.reshape(-1).index_select(0, routing.order)
        return grad.mul_(factors.unsqueeze(1)).to(rows.dtype), along, None


def _send(rows: Tensor, exchange: Exchange, axis: Axis) -> Tensor:
    """Rows in `dispatch` order to the ranks of their experts, and there into the order of the experts."""
    came = axis.all_to_all_rows(rows, exchange.send, exchange.receive)
    return came if exchange.order is None else came.index_select(0, exchange.order)


def _send_back(rows: Tensor, exchange: Exchange, axis: Axis) -> Tensor:
    """The inverse of `_send`."""
    rows = rows if exchange.place is None else rows.index_select(0, exchange.place)
    return axis.all_to_all_rows(rows, exchange.receive, exchange.send)


class _ToExperts(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: Exchange, axis: Axis) -> Tensor:
        ctx.how = exchange, axis
        return _send(rows, exchange, axis)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _send_back(grad, *ctx.how), None, None


class _ToTokens(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, exchange: Exchange, axis: Axis) -> Tensor:
        ctx.how = exchange, axis
        return _send_back(rows, exchange, axis)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return _send(grad, *ctx.how), None, None


def to_experts(rows: Tensor, routed: Routing, axis: Axis) -> Tensor:
    """S -> S': each row to the rank of its expert; there by expert, then by the rank it came from, in its order."""
    if axis.size == 1:
        return rows
    return _ToExperts.apply(rows_of(rows, len(routed.order), "the operand of to_experts"), exchange_of(routed), axis)


def to_tokens(rows: Tensor, routed: Routing, axis: Axis) -> Tensor:
    """S' -> S: each row back to the rank of its token, in `dispatch` order: the inverse of `to_experts`."""
    if axis.size == 1:
        return rows
    return _ToTokens.apply(rows_of(rows, routed.rows, "the operand of to_tokens"), exchange_of(routed), axis)


def own_rows(rows: Tensor, own: Routing, axis: Axis) -> Tensor:
    """R -> S: the rows of this rank's experts; backward pads with zeros, a gradient still to be summed."""
    if axis.size == 1:
        return rows
    return rows_of(rows, len(own.order), "the operand of own_rows").narrow(0, own.first, own.rows)


def all_rows(rows: Tensor, own: Routing, axis: Axis) -> Tensor:
    """S -> P: the rows of this rank's experts amid zeros, in `dispatch` order; backward takes this rank's."""
    return rows if axis.size == 1 else _AllRows.apply(rows_of(rows, own.rows, "the operand of all_rows"), own)


class _AllRows(Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, own: Routing) -> Tensor:
        ctx.own = own.first, own.rows
        out = rows.new_zeros((len(own.order), *rows.shape[1:]))
        out.narrow(0, own.first, own.rows).copy_(rows)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad.narrow(0, *ctx.own), None
