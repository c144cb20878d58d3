"""What several of these models are made of."""

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Causal attention with separate projections and biases."""

    def __init__(self, width: int = 32, heads: int = 4, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=bias) for _ in range(4))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.heads, C // self.heads).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(B, T, C))


class MLP(nn.Module):
    """Two matrices and a GELU."""

    def __init__(self, width: int = 32, hidden: int = 80) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """Pre-norm attention and MLP."""

    def __init__(self, width: int = 32, attention: nn.Module | None = None, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = attention or Attention(width)
        self.mlp = mlp or MLP(width)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """Embedding, positions, blocks, head, mean cross-entropy."""

    def __init__(self, blocks, width: int = 32) -> None:
        super().__init__()
        self.tok = nn.Embedding(32, width)
        self.pos = nn.Embedding(16, width)
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 32, bias=False)

    def embed(self, input_ids):
        return self.tok(input_ids) + self.pos(torch.arange(input_ids.shape[1], device=input_ids.device))

    def run(self, x):
        for block in self.blocks:
            x = block(x)
        return x

    def loss(self, logits, labels):
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1))

    def forward(self, input_ids, labels):
        return self.loss(self.head(self.norm(self.run(self.embed(input_ids)))), labels)
