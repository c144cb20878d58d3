"""Embedding and cross-entropy when each rank holds a part of the vocabulary.

Rank r holds columns r * local to (r + 1) * local. If the vocabulary does not divide, the last columns are padding:
no token has such an id, and the loss leaves them out.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from graphpar.runtime.axis import Axis
from graphpar.runtime.casts import upcast
from graphpar.runtime.once import once


def vocab_embedding(ids: Tensor, weight: Tensor, axis: Axis, padding_idx: int | None = None) -> Tensor:
    """ids [..], weight [local, d] -> [.., d], P: zeros where another rank holds the row.

    An id outside the vocabulary is an error, as in `F.embedding`: it is left to the first or last rank, which fails.
    """
    if axis.size == 1:
        return F.embedding(ids, weight, padding_idx)
    local = weight.shape[0]
    own = ids - axis.rank * local
    elsewhere = _elsewhere(own, local, first=axis.rank == 0, last=axis.rank == axis.size - 1)
    if padding_idx is not None:
        padding_idx -= axis.rank * local
        padding_idx = padding_idx if 0 <= padding_idx < local else None
    rows = F.embedding(own.masked_fill(elsewhere, 0), weight, padding_idx)
    return rows.masked_fill_(elsewhere.unsqueeze(-1), 0)


def _elsewhere(own: Tensor, local: int, *, first: bool, last: bool) -> Tensor:
    """Where an index, counted from this rank's first row, belongs to another rank.

    Nobody is below the first rank nor above the last, so what they would have to disown is a mistake.
    """
    if first and last:
        return torch.zeros_like(own, dtype=torch.bool)
    if first:
        return own >= local
    if last:
        return own < 0
    return (own < 0) | (own >= local)


def vocab_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    axis: Axis,
    *,
    vocab: int,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    reduction: Literal["sum", "mean", "none"] = "sum",
) -> Tensor:
    """logits [.., local], labels [..] -> I: `F.cross_entropy` over the whole vocabulary of `vocab` columns.

    One all-gather of [1, 2, tokens]; backward needs no communication. Computed and returned in float32 at least.
    """
    logits = logits.reshape(-1, logits.shape[-1])
    labels = labels.reshape(-1)
    if axis.size == 1:
        z = upcast(logits[:, :vocab])
        return F.cross_entropy(
            z, labels, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
        )
    losses: Tensor = _CrossEntropy.apply(logits, labels, axis, vocab, ignore_index, label_smoothing)
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / (labels != ignore_index).sum()


class _CrossEntropy(Function):
    """Per token: log sum exp(z) - (1 - e) z[label] - e / vocab * sum(z), and 0 where ignored.

    Each rank has a part of each sum. Kept for backward: the logits themselves and one number per token, from which the
    probabilities are computed again.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, labels: Tensor, axis: Axis, vocab: int, ignore_index: int, smoothing: float
    ) -> Tensor:
        columns = min(max(vocab - axis.rank * logits.shape[1], 0), logits.shape[1])  # the rest is padding
        own, mine = _own_labels(labels, logits.shape[1], columns, axis, vocab, ignore_index)
        z = upcast(logits[:, :columns])
        parts = z.new_zeros((1, 2, len(labels)))
        parts[0, 0] = z.logsumexp(1) if columns else -torch.inf
        if columns:
            parts[0, 1] = z.gather(1, own.unsqueeze(1)).squeeze(1).masked_fill_(~mine, 0).mul_(1 - smoothing)
        if smoothing:
            parts[0, 1] += z.sum(1) * (smoothing / vocab)
        parts = axis.all_gather(parts, 0)  # [ranks, 2, tokens]
        norm = parts[:, 0].logsumexp(0)
        valid = labels != ignore_index
        ctx.save_for_backward(logits, norm, own, mine, valid)
        ctx.columns, ctx.smoothing, ctx.vocab = columns, smoothing, vocab
        return (norm - parts[:, 1].sum(0)).masked_fill_(~valid, 0)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> Any:
        logits, norm, own, mine, valid = ctx.saved_tensors
        out = torch.zeros_like(logits, dtype=norm.dtype)
        if ctx.columns:
            z = out[:, : ctx.columns]
            z.copy_(logits[:, : ctx.columns]).sub_(norm.unsqueeze(1)).exp_()
            if ctx.smoothing:
                z.sub_(ctx.smoothing / ctx.vocab)
            z.scatter_add_(1, own.unsqueeze(1), (mine.to(z.dtype) * (ctx.smoothing - 1)).unsqueeze(1))
            z.mul_((grad * valid).unsqueeze(1))
        return out.to(logits.dtype), None, None, None, None, None


def _own_labels(
    labels: Tensor, local: int, columns: int, axis: Axis, vocab: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Labels counted from this rank's first column, 0 where another rank's or ignored; and where they are its own."""
    offset = axis.rank * local
    own = labels - offset
    last = columns > 0 and offset + columns == vocab
    elsewhere = _elsewhere(own, columns, first=axis.rank == 0, last=last) | (labels == ignore_index)
    return own.masked_fill(elsewhere, 0), ~elsewhere
