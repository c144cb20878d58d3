"""
A decoder with one fused gate|up matrix, grouped-query attention by expand, and per-head norms on queries and keys.
Returns a dict. Builds its causal mask itself.
"""

import torch
from torch import nn
from torch.nn import functional as F


class SwiGLU(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.gate_up = nn.Linear(dim, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, head_dim: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q = nn.Linear(dim, heads * head_dim, bias=False)
        self.kv = nn.Linear(dim, 2 * kv_heads * head_dim, bias=False)
        self.o = nn.Linear(heads * head_dim, dim, bias=False)
        self.q_norm = nn.RMSNorm(head_dim, eps=1e-6)
        self.k_norm = nn.RMSNorm(head_dim, eps=1e-6)

    def spread(self, x):
        """(b, kv_heads, t, head_dim) -> (b, heads, t, head_dim), each kv head next to its copies"""
        b, kv, t, d = x.shape
        groups = self.heads // kv
        return x[:, :, None].expand(b, kv, groups, t, d).reshape(b, self.heads, t, d)

    def forward(self, x, mask):
        b, t, _ = x.shape
        q = self.q(x).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)
        k, v = self.kv(x).split(self.kv_heads * self.head_dim, dim=-1)
        k = k.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        v = v.unflatten(-1, (self.kv_heads, self.head_dim)).transpose(1, 2)
        q, k = self.q_norm(q), self.k_norm(k)

        scores = torch.einsum("bhqd,bhkd->bhqk", q, self.spread(k)) / self.head_dim**0.5
        scores = scores.masked_fill(mask, float("-inf"))
        y = torch.einsum("bhqk,bhkd->bhqd", scores.softmax(dim=-1), self.spread(v))
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, head_dim: int, hidden: int):
        super().__init__()
        self.pre_attn = nn.RMSNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads, kv_heads, head_dim)
        self.pre_mlp = nn.RMSNorm(dim, eps=1e-6)
        self.mlp = SwiGLU(dim, hidden)

    def forward(self, x, mask):
        x = x + self.attn(self.pre_attn(x), mask)
        return x + self.mlp(self.pre_mlp(x))


class Decoder(nn.Module):
    def __init__(self, vocab=97, dim=56, layers=2, heads=4, kv_heads=2, head_dim=16, hidden=88, context=64):
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.positions = nn.Embedding(context, dim)
        self.layers = nn.ModuleList(Layer(dim, heads, kv_heads, head_dim, hidden) for _ in range(layers))
        self.norm = nn.RMSNorm(dim, eps=1e-6)
        self.head = nn.Linear(dim, vocab, bias=False)

    def forward(self, input_ids, labels=None):
        t = input_ids.shape[1]
        mask = torch.ones(t, t, dtype=torch.bool, device=input_ids.device).triu(1)
        x = self.tokens(input_ids) + self.positions.weight[:t]
        for layer in self.layers:
            x = layer(x, mask)
        logits = self.head(self.norm(x))
        out = {"logits": logits}
        if labels is not None:
            # next-token loss: position i predicts token i + 1
            out["loss"] = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return out


def tiny():
    return Decoder()
