"""Multi-query attention: many query heads, one key and value head, fused into one projection."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.c_attn = nn.Linear(width, width + 2 * self.size)
        self.c_proj = nn.Linear(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split((C, self.size, self.size), dim=2)
        q = q.view(B, T, self.heads, self.size).transpose(1, 2)
        k, v = k.unsqueeze(1), v.unsqueeze(1)
        k, v = k.expand(-1, self.heads, -1, -1), v.expand(-1, self.heads, -1, -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = Attention(width)
        self.mlp = nn.Sequential(nn.Linear(width, 80), nn.GELU(), nn.Linear(80, width))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Model(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.wte = nn.Embedding(32, width)
        self.h = nn.ModuleList([Block(width) for _ in range(2)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 32, bias=False)

    def forward(self, input_ids, labels):
        x = self.wte(input_ids)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))


def model() -> nn.Module:
    return Model()
