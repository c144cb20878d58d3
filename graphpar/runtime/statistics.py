"""Norms and softmax along a dimension that is sharded: what travels is two numbers per row."""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.axis import Axis
from graphpar.runtime.casts import upcast
from graphpar.runtime.collectives import all_reduce, grad_all_reduce
from graphpar.runtime.once import once


def split_layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, axis: Axis, size: int, eps: float = 1e-5
) -> Tensor:
    """`F.layer_norm` over the last dimension, x [.., size / ranks] and weight and bias likewise, S -> S.

    One all-gather of [1, 2, ..] forward, one all-reduce of [2, ..] backward. Raises ValueError if the parts do not
    make up `size`.
    """
    if x.shape[-1] * axis.size != size:
        raise ValueError(f"{axis.size} parts of {x.shape[-1]} do not make a normalised dimension of {size}")
    if axis.size == 1:
        return F.layer_norm(x, (size,), weight, bias, eps)
    y: Tensor = _Standardize.apply(x, axis, eps)
    if weight is not None:
        y = y * weight
    return y if bias is None else y + bias


class _Standardize(Function):
    """(x - mean) / sqrt(variance + eps) over the last dimension.

    Means and squared deviations of the parts combine without cancellation: M2 = sum M2_r + n_r * (mean_r - mean)^2.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: Axis, eps: float) -> Tensor:
        z = upcast(x)
        n = z.shape[-1]
        variance, mean = torch.var_mean(z, -1, correction=0)
        parts = axis.all_gather(torch.stack((mean, variance)).unsqueeze(0), 0)  # [ranks, 2, ..]
        means, variances = parts.unbind(1)
        mean = means.mean(0)
        variance = (variances + (means - mean).square()).mean(0)
        scale = (variance + eps).rsqrt()
        y = (z - mean.unsqueeze(-1)) * scale.unsqueeze(-1)
        ctx.save_for_backward(y, scale)
        ctx.axis, ctx.size, ctx.dtype = axis, n * axis.size, x.dtype
        return y.to(x.dtype)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, scale = ctx.saved_tensors
        grad = grad.to(y.dtype)
        sums = ctx.axis.all_reduce(torch.stack((grad.sum(-1), (grad * y).sum(-1)))) / ctx.size
        mean, along = sums.unsqueeze(-1).unbind()
        return ((grad - mean - y * along) * scale.unsqueeze(-1)).to(ctx.dtype), None, None


def split_rms_norm(x: Tensor, weight: Tensor | None, axis: Axis, size: int, eps: float | None = None) -> Tensor:
    """`F.rms_norm` over the last dimension, x [.., size / ranks] and weight likewise, S -> S.

    One all-reduce of [.., 1] forward and one backward. Raises ValueError if the parts do not make up `size`.
    """
    if x.shape[-1] * axis.size != size:
        raise ValueError(f"{axis.size} parts of {x.shape[-1]} do not make a normalised dimension of {size}")
    if axis.size == 1:
        return F.rms_norm(x, (size,), weight, eps)
    z = upcast(x)
    mean = all_reduce(z.square().sum(-1, keepdim=True), axis) / size
    scale = grad_all_reduce(mean, axis).add(torch.finfo(x.dtype).eps if eps is None else eps).rsqrt()
    y = (z * scale).to(x.dtype)
    return y if weight is None else y * weight


def split_softmax(x: Tensor, dim: int, axis: Axis) -> Tensor:
    """`F.softmax` along a dim that is sharded over the axis, S -> S.

    One all-gather of [1, ..] forward, one all-reduce of [..] backward, where dim has size 1.
    """
    return x.softmax(dim) if axis.size == 1 else _Softmax.apply(x, dim, axis)


class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, axis: Axis) -> Tensor:
        z = upcast(x)
        norm = axis.all_gather(z.logsumexp(dim, keepdim=True).unsqueeze(0), 0).logsumexp(0)
        y = (z - norm).exp_().to(x.dtype)
        ctx.save_for_backward(y)
        ctx.axis, ctx.dim = axis, dim
        return y

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        weighted = upcast(grad * y)
        along = ctx.axis.all_reduce(weighted.sum(ctx.dim, keepdim=True))
        return (weighted - y * along).to(y.dtype), None, None
