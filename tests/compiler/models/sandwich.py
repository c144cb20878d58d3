"""Norms before and after each part, the norm written out by hand with a weight of one plus a parameter."""

import torch
from parts import MLP, Attention, Decoder
from torch import nn


class Norm(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        x32 = x.float()
        return (x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * (1 + self.weight)


class Sandwich(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn, self.mlp = Attention(bias=False), MLP()
        self.a, self.b, self.c, self.d = (Norm() for _ in range(4))

    def forward(self, x):
        x = x + self.b(self.attn(self.a(x)))
        return x + self.d(self.mlp(self.c(x)))


def model():
    return Decoder([Sandwich() for _ in range(2)])
