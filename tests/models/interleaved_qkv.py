"""
A decoder whose projections are packed per head: the rows of one head's q, k and v lie next to each other. Rotary positions
are computed on the fly, pairing even with odd channels. Parallel residual.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def rotate_pairs(x, cos, sin):
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.head_dim = width // heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, self.heads, 3, self.head_dim)
        q, k, v = qkv.permute(3, 0, 2, 1, 4).unbind(0)  # each (batch, heads, length, head_dim)

        position = torch.arange(length, device=x.device, dtype=torch.float32)
        frequency = 10000.0 ** (-torch.arange(0, self.head_dim, 2, device=x.device, dtype=torch.float32) / self.head_dim)
        angle = position[:, None] * frequency[None, :]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q, k = rotate_pairs(q, cos, sin), rotate_pairs(k, cos, sin)

        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x):
        h = self.norm(x)
        return x + self.attn(h) + self.mlp(h)


class GPT(nn.Module):
    def __init__(self, vocab=96, width=40, heads=4, hidden=104, layers=3):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([Block(width, heads, hidden) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.unembed = nn.Linear(width, vocab)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.unembed(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1), label_smoothing=0.1)


def tiny():
    return GPT()
