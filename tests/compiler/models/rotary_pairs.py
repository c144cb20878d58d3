"""Rotary positions on neighbouring pairs, without complex numbers; tables in buffers, sliced by length."""

import torch
import torch.nn.functional as F
from torch import nn


def rotate(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.wq = nn.Linear(width, width, bias=False)
        self.wk = nn.Linear(width, width, bias=False)
        self.wv = nn.Linear(width, width, bias=False)
        self.wo = nn.Linear(width, width, bias=False)
        angles = torch.outer(torch.arange(64).float(), 1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.heads, self.size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        cos, sin = self.cos[:T], self.sin[:T]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.attention = Attention(width)
        self.w1, self.w2 = nn.Linear(width, 72, bias=False), nn.Linear(72, width, bias=False)
        self.w3 = nn.Linear(width, 72, bias=False)
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        h = self.norm2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Model(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tok = nn.Embedding(32, width)
        self.layers = nn.ModuleList([Block(width) for _ in range(2)])
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.output = nn.Linear(width, 32, bias=False)

    def forward(self, input_ids, labels):
        x = self.tok(input_ids)
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.output(self.norm(x)).transpose(1, 2), labels)


def model() -> nn.Module:
    return Model()
