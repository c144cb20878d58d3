"""Standardised weights: a long expression that ends in a call without arguments."""

import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn


class Standard(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 80), nn.Linear(80, 32)

    def unit(self, w):
        return (w - w.mean(1, keepdim=True)) / (w.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()

    def forward(self, x):
        return F.linear(F.silu(F.linear(x, self.unit(self.up.weight))), self.unit(self.down.weight))


def model():
    return Decoder([Block(32, None, Standard()) for _ in range(2)])
