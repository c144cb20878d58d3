"""A mixer that looks one token back: shifted copies, padding, roll, cumulative means over the sequence."""

import torch
import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.rand(32))
        self.up, self.down = nn.Linear(32, 80), nn.Linear(80, 32)

    def forward(self, x):
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        x = x * self.mix + before * (1 - self.mix)
        counts = torch.arange(1, x.shape[1] + 1, device=x.device).view(1, -1, 1)
        x = x + x.cumsum(dim=1) / counts
        return self.down(torch.relu(self.up(x)).square())


def model():
    return Decoder([Block(32, None, Shifted()) for _ in range(2)])
