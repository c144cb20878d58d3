"""A gated MLP: gate and up side by side, cut by chunk."""

import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.both, self.down = nn.Linear(32, 160), nn.Linear(80, 32)

    def forward(self, x):
        gate, up = self.both(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


def model():
    return Decoder([Block(32, None, Gated()) for _ in range(2)])
