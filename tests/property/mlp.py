"""The feed-forward part of a block."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from choices import Choices
from norms import norm
from torch import Tensor, nn

ACTIVATIONS = {
    "gelu": F.gelu,
    "tanh gelu": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "relu squared": lambda x: F.relu(x).square(),
}


class MLP(nn.Module):
    """Up, a nonlinearity, down; with a gate if it is not plain."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        if c.mlp == "matrices":
            self.up = nn.Parameter(torch.zeros(c.width, c.hidden))
            self.down = nn.Parameter(torch.zeros(c.hidden, c.width))
        else:
            ways = 2 if c.mlp.startswith("fused") else 1
            self.up = nn.Linear(c.width, ways * c.hidden, bias=c.bias)
            self.down = nn.Linear(c.hidden, c.width, bias=c.bias)
        if c.mlp == "gated":
            self.gate = nn.Linear(c.width, c.hidden, bias=c.bias)
        self.inside = Inside(c)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inside.before(x)
        h = self.inside(self.hidden(x), x)
        y = h @ self.down if self.c.mlp == "matrices" else self.down(h)
        return self.inside.after(y, x)

    def hidden(self, x: Tensor) -> Tensor:
        activation = ACTIVATIONS[self.c.activation]
        if self.c.mlp == "matrices":
            return activation(x @ self.up)
        if self.c.mlp == "plain":
            return activation(self.up(x))
        if self.c.mlp == "gated":
            return activation(self.gate(x)) * self.up(x)
        gate, up = self.halves(self.up(x))
        return activation(gate) * up

    def halves(self, both: Tensor) -> tuple[Tensor, ...]:
        if self.c.mlp == "fused":
            return both.chunk(2, dim=-1)
        if self.c.mlp == "fused slices":
            return both[..., : self.c.hidden], both[..., self.c.hidden :]
        return both.unflatten(-1, (2, self.c.hidden)).unbind(-2)


class Inside(nn.Module):
    """What some authors add to it."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        match c.within:
            case "inner norm":
                self.norm = norm(c.norm, c.hidden)
            case "low rank":
                self.a, self.b = nn.Linear(c.width, 4, bias=False), nn.Linear(4, c.width, bias=False)
            case "third matrix":
                self.middle = nn.Linear(c.hidden, c.hidden, bias=c.bias)
            case "mixture":
                self.router, self.other = nn.Linear(c.width, 2), nn.Linear(c.width, c.hidden)
            case "shifted":
                self.mix = nn.Parameter(torch.rand(c.width))

    def before(self, x: Tensor) -> Tensor:
        """What goes in: with "shifted", a mixture with the token before."""
        if self.c.within == "shifted":
            x = x * self.mix + F.pad(x, (0, 0, 1, 0))[:, :-1] * (1 - self.mix)
        return x

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """The hidden values, with what they are made from."""
        match self.c.within:
            case "inner norm":
                return self.norm(h)
            case "third matrix":
                return h + torch.tanh(self.middle(h))
            case "softmax":
                return h.softmax(dim=-1) * h
            case "mixture":
                share = self.router(x).softmax(-1)
                return share[..., :1] * h + share[..., 1:] * self.other(x)
            case _:
                return h

    def after(self, y: Tensor, x: Tensor) -> Tensor:
        """What comes out."""
        return y + 0.5 * self.b(self.a(x)) if self.c.within == "low rank" else y
