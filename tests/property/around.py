"""What some authors put between attention's heads and its output matrix."""

from __future__ import annotations

import torch
from choices import Choices
from norms import norm
from torch import Tensor, nn


class Around(nn.Module):
    """Gates, scales, a norm, or a mixture of heads."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        wide = c.heads * c.values
        match c.about:
            case "head gate":
                self.gate = nn.Linear(c.width, c.heads)
            case "channel gate":
                self.gate = nn.Linear(c.width, wide, bias=c.bias)
            case "head scale":
                self.scale = nn.Parameter(torch.ones(c.heads))
            case "inner norm":
                self.norm = norm(c.norm, wide)
            case "talking heads":
                self.mix = nn.Parameter(torch.eye(c.heads))

    def heads(self, y: Tensor, x: Tensor) -> Tensor:
        """(batch, heads, seq, size), the stream beside it."""
        match self.c.about:
            case "head gate":
                return y * torch.sigmoid(self.gate(x)).transpose(1, 2).unsqueeze(-1)
            case "head scale":
                return y * self.scale.view(1, -1, 1, 1)
            case "talking heads":
                return torch.einsum("bhtd,hg->bgtd", y, self.mix)
            case _:
                return y

    def forward(self, y: Tensor, x: Tensor) -> Tensor:
        """(batch, seq, heads size)."""
        match self.c.about:
            case "channel gate":
                return y * self.gate(x).sigmoid()
            case "inner norm":
                return self.norm(y)
            case _:
                return y
