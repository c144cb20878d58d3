"""Positions that attention adds by itself: rotations of pairs of channels, and slopes."""

from __future__ import annotations

import torch
from choices import LONGEST, Choices
from torch import Tensor, nn


def frequencies(turning: int) -> Tensor:
    """How fast each pair of channels turns."""
    return 1.0 / (10000 ** (torch.arange(0, turning, 2, dtype=torch.float32) / turning))


class Rotary(nn.Module):
    """Turns pairs of channels of queries and keys, (batch, heads, seq, size), by their positions."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        self.turning = 2 * (c.size // 4) if c.positions == "rotary partial" else c.size
        if c.tables == "buffer":
            angle = torch.outer(torch.arange(LONGEST, dtype=torch.float32), frequencies(self.turning))
            self.register_buffer("cos", angle.cos(), persistent=False)
            self.register_buffer("sin", angle.sin(), persistent=False)
        if c.tables == "inv_freq":
            self.register_buffer("inv_freq", frequencies(self.turning), persistent=False)

    def forward(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.angles(q)
        return self.turn(q, cos, sin), self.turn(k, cos, sin)

    def angles(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine, each (seq, half of the channels that turn)."""
        T = q.size(2)
        if self.c.tables == "buffer":
            return self.cos[:T], self.sin[:T]
        at = torch.arange(T, device=q.device, dtype=torch.float32)
        if self.c.tables == "inv_freq":
            angle = torch.einsum("i,j->ij", at, self.inv_freq)
        else:
            angle = at[:, None] * frequencies(self.turning)[None, :]
        return angle.cos().to(q.dtype), angle.sin().to(q.dtype)

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        if self.c.positions == "rotary partial":
            turning, rest = x[..., : self.turning], x[..., self.turning :]
            return torch.cat((halves(turning, cos, sin), rest), dim=-1)
        return pairs(x, cos, sin) if self.c.positions == "rotary pairs" else whole(x, cos, sin)


def halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The first half of the channels against the second."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def whole(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The same with tables as wide as x."""
    cos, sin = torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Even channels against odd ones."""
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def slopes(heads: int) -> Tensor:
    """ALiBi's, one for each head."""
    return torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
