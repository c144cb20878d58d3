"""Collectives in pairs: each function says what happens forward and, with it, what happens backward.

Along one mesh axis a value is in one of four states, and its gradient in the matching one:

    I   one value, same gradient everywhere               gradient I
    R   one value, whose gradient is still to be summed   gradient P
    S   this rank's part                                  gradient S
    P   a summand; the value is the sum over the ranks    gradient R

    function          from -> to   forward          backward
    all_reduce        P -> I       all-reduce       nothing
    grad_all_reduce   I -> R       nothing          all-reduce
    all_gather        S -> R       all-gather       reduce-scatter
    reduce_scatter    P -> S       reduce-scatter   all-gather
    all_gather_same   S -> I       all-gather       slice
    slice_            I -> S       slice            all-gather
    all_to_all        S -> S'      all-to-all       all-to-all
    slice_partial     R -> S       slice            zero-pad
    pad_partial       S -> P       zero-pad         slice
    first_only        I -> P       rank 0 keeps     nothing
    first_only_both   R -> P       rank 0 keeps     rank 0 keeps

All ranks of the axis must call them in the same order. Results are contiguous and operands stay as they were.
Along an axis of size 1 each returns its operand. `blocks` is explained in `blocks.py`.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.axis import Axis
from graphpar.runtime.blocks import Blocks, pad, take


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        return axis.all_reduce(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class _GradAllReduce(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x  # autograd makes it a view

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.axis.all_reduce(grad), None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, blocks: Blocks) -> Tensor:
        ctx.how = axis, dim, blocks
        return axis.all_gather(x, dim, blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return axis.reduce_scatter(grad, dim, blocks), None, None, None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, blocks: Blocks) -> Tensor:
        ctx.how = axis, dim, blocks
        return axis.reduce_scatter(x, dim, blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return axis.all_gather(grad, dim, blocks), None, None, None


class _AllGatherSame(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, blocks: Blocks) -> Tensor:
        ctx.how = axis, dim, blocks
        return axis.all_gather(x, dim, blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return take(grad, axis.size, axis.rank, dim, blocks), None, None, None


class _Slice(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, blocks: Blocks) -> Tensor:
        ctx.how = axis, dim, blocks
        return take(x, axis.size, axis.rank, dim, blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return axis.all_gather(grad, dim, blocks), None, None, None


class _AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, axis: Axis, split_dim: int, concat_dim: int, split_blocks: Blocks, concat_blocks: Blocks
    ) -> Tensor:
        ctx.how = axis, concat_dim, split_dim, concat_blocks, split_blocks
        return axis.all_to_all(x, split_dim, concat_dim, split_blocks, concat_blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, *how = ctx.how
        return axis.all_to_all(grad, *how), None, None, None, None, None


class _PadPartial(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, dim: int, blocks: Blocks) -> Tensor:
        ctx.how = axis, dim, blocks
        return pad(x, axis.size, axis.rank, dim, blocks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return take(grad, axis.size, axis.rank, dim, blocks), None, None, None


class _FirstOnly(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        return x.clone() if axis.rank == 0 else torch.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


class _FirstOnlyBoth(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis) -> Tensor:
        ctx.axis = axis
        return x.clone() if axis.rank == 0 else torch.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        # Zeros rather than None: every rank walks the same graph and so runs the same collectives.
        return grad if ctx.axis.rank == 0 else torch.zeros_like(grad), None


def all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """P -> I: the sum over the axis; backward nothing."""
    return x if axis.size == 1 else _AllReduce.apply(x, axis)


def grad_all_reduce(x: Tensor, axis: Axis) -> Tensor:
    """I -> R: x; backward sums the gradient over the axis."""
    return x if axis.size == 1 else _GradAllReduce.apply(x, axis)


def all_gather(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """S -> R: all parts joined along dim; backward sums the gradient and keeps this rank's part."""
    return x if axis.size == 1 else _AllGather.apply(x, axis, dim, blocks)


def reduce_scatter(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """P -> S: this rank's part of the sum; backward joins the gradients.

    Raises ValueError if dim does not divide.
    """
    return x if axis.size == 1 else _ReduceScatter.apply(x, axis, dim, blocks)


def all_gather_same(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """S -> I: all parts joined along dim, for consumers that do the same work on every rank; backward slices."""
    return x if axis.size == 1 else _AllGatherSame.apply(x, axis, dim, blocks)


def slice_(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """I -> S: this rank's part; backward joins the gradients.

    Raises ValueError if dim does not divide.
    """
    return x if axis.size == 1 else _Slice.apply(x, axis, dim, blocks)


def all_to_all(
    x: Tensor, axis: Axis, split_dim: int, concat_dim: int, split_blocks: Blocks = 1, concat_blocks: Blocks = 1
) -> Tensor:
    """S -> S': split_dim, whole before, is cut; concat_dim, cut before, is whole. Backward the other way round.

    Raises ValueError if split_dim does not divide.
    """
    if axis.size == 1:
        return x
    how = (split_dim, concat_dim, split_blocks, concat_blocks)
    return _AllToAll.apply(x, axis, *how)


def slice_partial(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """R -> S: this rank's part; backward pads the gradient with zeros, and its sum is still to be taken.

    Raises ValueError if dim does not divide.
    """
    return x if axis.size == 1 else take(x, axis.size, axis.rank, dim, blocks)


def pad_partial(x: Tensor, axis: Axis, dim: int, blocks: Blocks = 1) -> Tensor:
    """S -> P: this rank's part amid zeros; backward slices."""
    return x if axis.size == 1 else _PadPartial.apply(x, axis, dim, blocks)


def first_only(x: Tensor, axis: Axis) -> Tensor:
    """I -> P: x on rank 0 and zeros elsewhere, so that a pending sum takes it once; backward nothing."""
    return x if axis.size == 1 else _FirstOnly.apply(x, axis)


def first_only_both(x: Tensor, axis: Axis) -> Tensor:
    """R -> P: x on rank 0 and zeros elsewhere; the gradient likewise."""
    return x if axis.size == 1 else _FirstOnlyBoth.apply(x, axis)


def all_reduce_max(x: Tensor, axis: Axis) -> Tensor:
    """The maximum over the axis, without gradient."""
    return x.detach() if axis.size == 1 else axis.all_reduce(x.detach(), "max")


def all_reduce_count(x: Tensor, axis: Axis) -> Tensor:
    """The sum over the axis of something that has no gradient, such as a number of labels."""
    return x.detach() if axis.size == 1 else axis.all_reduce(x.detach())
