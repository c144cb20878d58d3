"""Each block's values mixed with those of the first block, which are None before there are any."""

import torch
import torch.nn.functional as F
from parts import Attention, Block, Decoder
from torch import nn


class Mixed(Attention):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.tensor([0.6, 0.4]))

    def forward(self, x, first):
        B, T, C = x.shape
        q, k, v = (w(x).view(B, T, self.heads, C // self.heads).transpose(1, 2) for w in (self.q, self.k, self.v))
        first = v if first is None else first
        y = F.scaled_dot_product_attention(q, k, self.mix[0] * v + self.mix[1] * first, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(B, T, C)), first


class Residual(Block):
    def __init__(self):
        super().__init__(32, Mixed())

    def forward(self, x, first):
        y, first = self.attn(self.norm1(x), first)
        x = x + y
        return x + self.mlp(self.norm2(x)), first


class Model(Decoder):
    def run(self, x):
        first = None
        for block in self.blocks:
            x, first = block(x, first)
        return x


def model():
    return Model([Residual() for _ in range(3)])
