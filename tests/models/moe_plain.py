"""
A small decoder with a mixture of experts in every other layer.

Tokens are sorted by expert, multiplied with the stack of their experts' matrices and added back with index_add. The
router is kept balanced by the usual auxiliary loss and a z loss on its logits.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab: int = 96
    block_size: int = 64
    layers: int = 4
    heads: int = 4
    width: int = 48
    hidden: int = 80
    experts: int = 8
    expert_hidden: int = 40
    top_k: int = 2
    balance: float = 0.02
    z: float = 0.001


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.qkv = nn.Linear(c.width, 3 * c.width, bias=False)
        self.out = nn.Linear(c.width, c.width, bias=False)
        self.heads = c.heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.up = nn.Linear(c.width, c.hidden)
        self.down = nn.Linear(c.hidden, c.width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x))), x.new_zeros(())


class MoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.router = nn.Linear(c.width, c.experts, bias=False)
        self.w_in = nn.Parameter(torch.randn(c.experts, c.width, c.expert_hidden) * 0.05)
        self.b_in = nn.Parameter(torch.zeros(c.experts, c.expert_hidden))
        self.w_out = nn.Parameter(torch.randn(c.experts, c.expert_hidden, c.width) * 0.05)

    def forward(self, x):
        c = self.c
        tokens = x.reshape(-1, c.width)
        logits = self.router(tokens)
        probs = F.softmax(logits, dim=-1)
        weight, chosen = torch.topk(probs, c.top_k, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)

        expert = chosen.reshape(-1)
        order = torch.argsort(expert)
        owner = order // c.top_k
        expert = expert[order]
        rows = tokens[owner].unsqueeze(1)
        h = F.gelu((rows @ self.w_in[expert]).squeeze(1) + self.b_in[expert])
        y = (h.unsqueeze(1) @ self.w_out[expert]).squeeze(1)
        y = y * weight.reshape(-1)[order].unsqueeze(-1)
        out = torch.zeros_like(tokens).index_add(0, owner, y)

        share = F.one_hot(chosen, c.experts).float().sum(dim=1).mean(dim=0) / c.top_k
        balance = c.experts * (share * probs.mean(dim=0)).sum()
        z = torch.logsumexp(logits, dim=-1).square().mean()
        return out.view_as(x), c.balance * balance + c.z * z


class Block(nn.Module):
    def __init__(self, c, moe):
        super().__init__()
        self.norm1 = nn.LayerNorm(c.width)
        self.attn = Attention(c)
        self.norm2 = nn.LayerNorm(c.width)
        self.ffn = MoE(c) if moe else MLP(c)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        y, loss = self.ffn(self.norm2(x))
        return x + y, loss


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed = nn.Embedding(c.vocab, c.width)
        self.position = nn.Embedding(c.block_size, c.width)
        self.blocks = nn.ModuleList(Block(c, moe=i % 2 == 1) for i in range(c.layers))
        self.norm = nn.LayerNorm(c.width)
        self.head = nn.Linear(c.width, c.vocab, bias=False)

    def forward(self, ids, labels):
        x = self.embed(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        extra = 0.0
        for block in self.blocks:
            x, loss = block(x)
            extra = extra + loss
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) + extra


def tiny():
    return Decoder(Config())
