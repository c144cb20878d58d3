"""Norms as people write them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ByHand(nn.Module):
    """RMSNorm that computes in float32."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class PlusOne(nn.Module):
    """RMSNorm whose weight is what is added to one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide / torch.sqrt((wide * wide).mean(dim=-1, keepdim=True) + 1e-6)
        return (wide * (1.0 + self.weight.float())).type_as(x)


class Functional(nn.Module):
    """torch's function, with a weight of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.size(-1),), self.weight, eps=1e-6)


def norm(word: str, width: int) -> nn.Module:
    """The norm that a word stands for."""
    match word:
        case "LayerNorm":
            return nn.LayerNorm(width)
        case "LayerNorm without bias":
            return nn.LayerNorm(width, bias=False)
        case "RMSNorm by hand":
            return ByHand(width)
        case "RMSNorm + 1":
            return PlusOne(width)
        case "F.rms_norm":
            return Functional(width)
        case _:
            return nn.RMSNorm(width, eps=1e-6)
