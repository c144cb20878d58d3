"""ALiBi: no positions but a slope per head, subtracted from the scores by distance."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width: int = 24, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.dense = nn.Linear(width, width)
        slopes = torch.tensor([2 ** (-8 * (i + 1) / heads) for i in range(heads)])
        self.register_buffer("slopes", slopes, persistent=False)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.query_key_value(x).view(B, T, self.heads, 3, C // self.heads).unbind(3)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        at = torch.arange(T, device=x.device)
        distance = (at[None, :] - at[:, None]).to(x.dtype)
        scores = q @ k.transpose(-1, -2) / math.sqrt(C // self.heads) + self.slopes[:, None, None] * distance
        scores = scores.masked_fill(at[None, :] > at[:, None], float("-inf"))
        y = F.softmax(scores, dim=-1) @ v
        return self.dense(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.input_layernorm(x))
        return x + self.down(F.gelu(self.up(self.post_attention_layernorm(x))))


class Model(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.embeddings = nn.Embedding(32, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])

    def forward(self, input_ids, labels):
        x = self.norm(self.embeddings(input_ids))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(x, self.embeddings.weight)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def model() -> nn.Module:
    return Model()
