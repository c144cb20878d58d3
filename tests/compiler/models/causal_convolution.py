"""A short causal convolution of every channel before each block."""

import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn


class Convolved(Block):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(32, 32, 3, groups=32)

    def forward(self, x):
        return super().forward(x + self.conv(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2))


def model():
    return Decoder([Convolved() for _ in range(2)])
