"""
A small GPT whose output layer is the embedding table itself, used through F.linear, with scaled embeddings and a final
bias. Packed projection parameters are declared by hand; the MLP is a squared ReLU.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim))
        self.out_proj = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.in_proj_weight)

    def forward(self, x):
        b, t, c = x.shape
        qkv = F.linear(x, self.in_proj_weight, self.in_proj_bias)
        qkv = qkv.reshape(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        return self.out_proj(y.permute(0, 2, 1, 3).reshape(b, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, dropout):
        super().__init__()
        self.attn = Attention(dim, heads, dropout)
        self.attn_norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        self.mlp_norm = nn.LayerNorm(dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.attn_norm(x)))
        h = F.relu(self.up(self.mlp_norm(x))).square()
        return x + self.drop(self.down(h))


class TinyGPT(nn.Module):
    def __init__(self, vocab=97, dim=32, heads=4, hidden=112, layers=3, context=40, dropout=0.2):
        super().__init__()
        self.dim = dim
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(context, dim) * 0.02)
        self.blocks = nn.ModuleList([Block(dim, heads, hidden, dropout) for _ in range(layers)])
        self.norm = nn.LayerNorm(dim)
        self.out_bias = nn.Parameter(torch.zeros(vocab))
        nn.init.normal_(self.emb.weight, std=dim**-0.5)

    def forward(self, idx, targets):
        x = self.emb(idx) * self.dim**0.5 + self.pos[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.emb.weight, self.out_bias)
        return F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=0)  # classes on axis 1; 0 is padding


def tiny():
    return TinyGPT()
