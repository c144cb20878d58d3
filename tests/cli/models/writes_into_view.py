"""Every other token of a tensor is assigned."""

import torch
from small import Small


class Model(Small):
    def mix(self, x):
        sparse = torch.zeros_like(x)
        sparse[:, ::2] = x[:, ::2]
        return super().mix(x + sparse)
