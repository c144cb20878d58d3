"""What the experts compute: each row with its own expert's matrix.

Where torch can, all experts' products are one grouped product; on a GPU it is one kernel, and the host need not know
how many rows each expert has. Elsewhere they are a loop, whose products are written where they belong.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.grouped import by_group, has_kernel, products
from graphpar.runtime.once import once
from graphpar.runtime.routing import Routing, rows_of


def expert_linear(rows: Tensor, w: Tensor, routing: Routing, *, transposed: bool = False) -> Tensor:
    """rows [rows, in] by expert, w [experts, out, in], or [experts, in, out] if transposed -> [rows, out].

    In the dtype of w. Under autocast both are cast, as those of `F.linear`.
    """
    _check(rows, w, routing)
    w = _autocast(w)
    rows = rows.to(w.dtype)
    grouped = rows.shape[0] > 0 and _has_grouped(rows, w)
    product = _Grouped.apply if grouped else _Looped.apply
    return product(rows, w.transpose(1, 2) if transposed else w, routing)


def expert_bias(rows: Tensor, b: Tensor, routing: Routing) -> Tensor:
    """rows [rows, out] by expert, b [experts, out] -> rows, each with its expert's b, in the dtype of the rows."""
    _check(rows, b, routing)
    return _Bias.apply(rows, b, routing)


def _check(rows: Tensor, parameter: Tensor, routing: Routing) -> None:
    rows_of(rows, routing.rows, "the operand of the experts")
    if len(parameter) != routing.experts:
        raise ValueError(f"a parameter has {len(parameter)} experts, but the rows are those of {routing.experts}")


def _autocast(x: Tensor) -> Tensor:
    """X in the dtype in which autocast computes a matrix product."""
    kind = x.device.type
    if x.dtype == torch.float64 or not torch.is_autocast_enabled(kind):
        return x
    return x.to(torch.get_autocast_dtype(kind))


def _has_grouped(rows: Tensor, w: Tensor) -> bool:
    """On a GPU, only what is one kernel: for the rest torch would wait for the counts, as the loop does."""
    if not has_kernel(w.dtype, *w.shape[1:]):
        return False
    if rows.is_cuda:
        return w.dtype == torch.bfloat16 and torch.cuda.get_device_capability(rows.device) >= (8, 0)
    return rows.is_cpu


def _gradient_of(w: Tensor) -> Tensor:
    """Memory for a gradient, laid out as w is: a transposed matrix's, transposed."""
    return torch.empty_like(w) if w.is_contiguous() else torch.empty_like(w.transpose(1, 2)).transpose(1, 2)


class _Looped(Function):
    """rows [rows, in], w [experts, out, in] -> [rows, out]."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, w: Tensor, routing: Routing) -> Tensor:
        ctx.save_for_backward(rows, w)
        ctx.sizes = routing.sizes
        return _products(rows, w.transpose(1, 2), routing.sizes)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, w = ctx.saved_tensors
        to_rows = _products(grad, w, ctx.sizes) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return to_rows, None, None
        to_w = _gradient_of(w)
        for x, y, out in zip(rows.split(ctx.sizes), grad.split(ctx.sizes), to_w.unbind(), strict=True):
            torch.mm(y.t(), x, out=out)  # zeros where there are no rows
        return to_rows, to_w, None


def _products(rows: Tensor, matrices: Tensor, sizes: list[int]) -> Tensor:
    """rows [rows, a], matrices [experts, a, b] -> [rows, b]."""
    out = rows.new_empty((rows.shape[0], matrices.shape[2]))
    for x, matrix, y in zip(rows.split(sizes), matrices.unbind(), out.split(sizes), strict=True):
        torch.mm(x, matrix, out=y)
    return out


class _Grouped(Function):
    """rows [rows, in], w [experts, out, in] -> [rows, out]; one row at least."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, w: Tensor, routing: Routing) -> Tensor:
        rows = rows.contiguous()
        ctx.save_for_backward(rows, w)
        ctx.ends = routing.ends
        return by_group(rows, w.mT, ctx.ends)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, w = ctx.saved_tensors
        grad = grad.contiguous()
        to_rows = by_group(grad, w, ctx.ends) if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return to_rows, None, None
        to_w = products(grad, rows, ctx.ends) if w.is_contiguous() else products(rows, grad, ctx.ends).mT
        return to_rows, to_w, None


class _Bias(Function):
    """A GPU finds each row's expert and sums as a product: it waits for no count, and adds in one order."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, b: Tensor, routing: Routing) -> Tensor:
        ctx.routing, ctx.dtype = routing, b.dtype
        b = b.to(rows.dtype)
        if not rows.is_cpu:
            return rows + b.repeat_interleave(routing.counts, 0, output_size=routing.rows)
        out = torch.empty_like(rows)
        sizes = routing.sizes
        for x, bias, y in zip(rows.split(sizes), b.unbind(), out.split(sizes), strict=True):
            torch.add(x, bias, out=y)
        return out

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, _sums(grad, ctx.routing).to(ctx.dtype) if ctx.needs_input_grad[1] else None, None


def _sums(rows: Tensor, routing: Routing) -> Tensor:
    """rows [rows, d] -> [experts, d]."""
    if rows.is_cpu:
        return torch.stack([part.sum(0) for part in rows.split(routing.sizes)])
    experts = torch.arange(routing.experts, device=rows.device)
    ids = experts.repeat_interleave(routing.counts, output_size=routing.rows)
    return (ids == experts.unsqueeze(1)).to(rows.dtype) @ rows
