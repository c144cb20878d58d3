"""Cutting one dimension into the parts of n ranks, and joining them again.

The cut factor need not lead its dimension. `blocks` says what stands before it:

    1         dim = (cut inner)                 contiguous parts; the usual case
    3         dim = (3 cut inner)               three equal blocks, each cut, as in a packed q, k, v
    (4, 2, 2) dim = (cut 4) + (cut 2) + (cut 2) segments of these local sizes, each cut
"""

from collections.abc import Sequence

import torch
from torch import Tensor

Blocks = int | tuple[int, ...]


def cut(x: Tensor, n: int, dim: int, blocks: Blocks = 1) -> Tensor:
    """[.., n * size, ..] -> the parts [.., size, ..] of ranks 0 to n - 1, one after the other along dimension 0.

    Contiguous, and x itself if it already lies so. Raises ValueError if the dimension does not divide.
    """
    dim %= x.dim()
    if isinstance(blocks, tuple):
        segments = x.split(_wide(x, n, dim, blocks), dim)
        parts = zip(*(segment.chunk(n, dim) for segment in segments), strict=True)
        return torch.cat([torch.cat(part, dim) for part in parts])
    _check(x, n, dim, blocks)
    if dim == 0 and blocks == 1:
        return x.contiguous()
    before, after = x.shape[:dim], x.shape[dim + 1 :]
    if blocks == 1 and before.numel() > 1:
        return torch.cat(x.chunk(n, dim))
    parts = _opened(x, n, dim, blocks).movedim(dim + 1, 0)
    shape = x.shape if dim == 0 else (n * x.shape[0], *before[1:], x.shape[dim] // n, *after)
    return parts.reshape(shape).contiguous()


def join(parts: Tensor, n: int, dim: int, blocks: Blocks = 1) -> Tensor:
    """The inverse of `cut`; `parts` itself or a view where they already lie in order."""
    dim %= parts.dim()
    if isinstance(blocks, tuple):
        rows = zip(*(part.split(list(blocks), dim) for part in parts.chunk(n)), strict=True)
        return torch.cat([piece for row in rows for piece in row], dim)
    if blocks == 1 and dim == 0:
        return parts
    if blocks == 1 and parts.shape[:dim].numel() > n:
        return torch.cat(parts.chunk(n), dim)
    shape = [parts.shape[0] // n, *parts.shape[1:]]
    inner = shape[dim] // blocks
    opened = parts.view(n, *shape[:dim], blocks, inner, *shape[dim + 1 :]).movedim(0, dim + 1)
    return opened.reshape(*shape[:dim], n * shape[dim], *shape[dim + 1 :])


def take(x: Tensor, n: int, i: int, dim: int, blocks: Blocks = 1) -> Tensor:
    """[.., n * size, ..] -> contiguous [.., size, ..], the part of rank i.

    Raises ValueError if the dimension does not divide.
    """
    dim %= x.dim()
    if isinstance(blocks, tuple):
        pieces = zip(x.split(_wide(x, n, dim, blocks), dim), blocks, strict=True)
        return torch.cat([piece.narrow(dim, i * size, size) for piece, size in pieces], dim)
    _check(x, n, dim, blocks)
    if blocks == 1:
        size = x.shape[dim] // n
        return x.narrow(dim, i * size, size).contiguous()
    return _opened(x, n, dim, blocks).select(dim + 1, i).reshape(_part(x, n, dim)).contiguous()


def pad(x: Tensor, n: int, i: int, dim: int, blocks: Blocks = 1) -> Tensor:
    """[.., size, ..] -> [.., n * size, ..], x in the place of rank i and zeros elsewhere: the transpose of `take`."""
    dim %= x.dim()
    size = x.shape[dim]
    out = x.new_zeros((*x.shape[:dim], n * size, *x.shape[dim + 1 :]))
    if isinstance(blocks, tuple):
        wide = out.split(_wide(out, n, dim, blocks), dim)
        for piece, own in zip(wide, x.split(list(blocks), dim), strict=True):
            piece.narrow(dim, i * own.shape[dim], own.shape[dim]).copy_(own)
        return out
    _check(out, n, dim, blocks)
    place = _opened(out, n, dim, blocks).select(dim + 1, i)
    place.copy_(x.reshape(place.shape))
    return out


def _opened(x: Tensor, n: int, dim: int, blocks: int) -> Tensor:
    """[.., blocks * n * inner, ..] -> [.., blocks, n, inner, ..]."""
    return x.reshape(*x.shape[:dim], blocks, n, x.shape[dim] // (blocks * n), *x.shape[dim + 1 :])


def _part(x: Tensor, n: int, dim: int) -> Sequence[int]:
    return (*x.shape[:dim], x.shape[dim] // n, *x.shape[dim + 1 :])


def _check(x: Tensor, n: int, dim: int, blocks: int) -> None:
    if x.shape[dim] % (n * blocks):
        among = f"{n} ranks" if blocks == 1 else f"{blocks} blocks of {n} ranks"
        raise ValueError(f"dimension {dim} of {list(x.shape)} cannot be cut evenly into {among}")


def _wide(x: Tensor, n: int, dim: int, blocks: tuple[int, ...]) -> list[int]:
    if x.shape[dim] != n * sum(blocks):
        whole = " + ".join(str(n * size) for size in blocks)
        raise ValueError(f"dimension {dim} of {list(x.shape)} is not {whole}, the segments {blocks} of {n} ranks")
    return [n * size for size in blocks]
