"""Attention and MLP side by side on one norm, their sum added to the stream once; no biases, no dropout."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (t.view(B, T, self.heads, -1).transpose(1, 2) for t in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, bias=False)
        self.attn = Attention(width)
        self.up, self.down = nn.Linear(width, 96, bias=False), nn.Linear(96, width, bias=False)

    def forward(self, x):
        h = self.norm(x)
        return x + (self.attn(h) + self.down(F.gelu(self.up(h))))


class Model(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.emb = nn.Embedding(32, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])
        self.norm = nn.LayerNorm(width, bias=False)
        self.head = nn.Linear(width, 32, bias=False)

    def forward(self, input_ids, labels):
        x = self.emb(input_ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


def model() -> nn.Module:
    return Model()
