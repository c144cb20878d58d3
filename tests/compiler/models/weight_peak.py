"""Each row of a matrix divided by its largest entry: one weight used whole and, beside that, cut."""

import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn


class Peaked(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 80), nn.Linear(80, 32)

    def forward(self, x):
        up, down = (w.weight / w.weight.amax(1, keepdim=True) for w in (self.up, self.down))
        return F.linear(F.silu(F.linear(x, up)), down)


def model():
    return Decoder([Block(32, None, Peaked()) for _ in range(2)])
