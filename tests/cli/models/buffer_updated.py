"""A running mean is kept in a buffer."""

import torch
from small import Small


class Model(Small):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(48))

    def mix(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean((0, 1)))
        return super().mix(x - self.mean)
