"""Positions are added for one length."""

import torch
from small import Small
from torch import nn


class Model(Small):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.zeros(32, 48))

    def mix(self, x):
        return super().mix(x + self.positions)
