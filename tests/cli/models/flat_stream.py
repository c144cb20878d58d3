import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x, b, t):
        d = x.shape[-1]
        q, k, v = (y.view(b, t, self.h, d // self.h).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b * t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, layers=4, vocab=132, d=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(layers))
        self.norm = nn.LayerNorm(d)
        self.score = nn.Linear(d, vocab)

    def forward(self, ids, labels):
        b, t = ids.shape
        x = self.embed(ids).flatten(0, 1)
        for block in self.blocks:
            x = block(x, b, t)
        return F.cross_entropy(self.score(self.norm(x)), labels.flatten())
