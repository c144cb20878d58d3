"""Rotary tables, a learned scale per position and a mask, all sliced anew for every block."""

import torch
import torch.nn.functional as F
from parts import MLP
from torch import nn


def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x, cos, sin, scale):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C)) * scale
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.tok = nn.Embedding(32, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])
        self.scale = nn.Parameter(torch.ones(16, 1))
        angles = torch.outer(torch.arange(16).float(), 1.0 / 100 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        self.head = nn.Linear(width, 32, bias=False)

    def forward(self, input_ids, labels):
        T = input_ids.shape[1]
        h = self.tok(input_ids)
        for block in self.blocks:
            h = block(h, self.cos[:T], self.sin[:T], self.scale[:T])
        return F.cross_entropy(self.head(h).transpose(1, 2), labels)


def model() -> nn.Module:
    return Model()
