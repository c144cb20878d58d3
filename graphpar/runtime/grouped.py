"""Consecutive groups of rows, each multiplied with a matrix of its own.

torch has one kernel for all groups, for some dtypes and for rows that are multiples of 16 bytes; anything else is
computed group by group.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.once import once

_KERNELS = (torch.float32, torch.bfloat16, torch.float16)
_ALIGNED = 16  # bytes


def grouped_matmul(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """x [rows, k], w [groups, k, n] -> [rows, n]: group g ends before row offsets[g]; what follows the last is zero."""
    return _Grouped.apply(x, w, offsets.int())


class _Grouped(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(x, w, offsets)
        return by_group(x, w, offsets)

    @staticmethod
    @once
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, w, offsets = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_x = by_group(gradient, w.mT, offsets) if ctx.needs_input_grad[0] else None
        return of_x, products(x, gradient, offsets) if ctx.needs_input_grad[1] else None, None


def by_group(x: Tensor, w: Tensor, offsets: Tensor) -> Tensor:
    """Each group of rows times its matrix."""
    if _can_be_grouped(x, w):
        return F.grouped_mm(x, w, offs=offsets)
    parts = [rows @ w[i] for i, rows in enumerate(_groups(x, offsets))]
    done = torch.cat(parts)
    return torch.cat([done, done.new_zeros(x.shape[0] - done.shape[0], done.shape[1])])


def products(x: Tensor, y: Tensor, offsets: Tensor) -> Tensor:
    """The product of the columns of x and y over the rows of each group: [groups, columns of x, columns of y]."""
    if _can_be_grouped(x, y):
        made = F.grouped_mm(x.mT, y, offs=offsets)
        if made.is_cpu:
            return made
        # Of a group without rows, the kernels of some GPUs write nothing (pytorch/pytorch#172439).
        empty = offsets.diff(prepend=offsets.new_zeros(1)) == 0
        return made.masked_fill_(empty.view(-1, 1, 1), 0)
    both = zip(_groups(x, offsets), _groups(y, offsets), strict=True)
    return torch.stack([a.mT @ b for a, b in both])


def _groups(x: Tensor, offsets: Tensor) -> list[Tensor]:
    ends = [int(n) for n in offsets.tolist()]
    return [x[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def has_kernel(dtype: torch.dtype, *steps: int) -> bool:
    """Whether torch has a kernel for this dtype, and for rows so many numbers apart."""
    return dtype in _KERNELS and all(step * dtype.itemsize % _ALIGNED == 0 for step in steps)


def _can_be_grouped(*operands: Tensor) -> bool:
    strides = [x.stride()[-2:] for x in operands]
    return all(1 in s and has_kernel(x.dtype, max(s)) for x, s in zip(operands, strides, strict=True))
