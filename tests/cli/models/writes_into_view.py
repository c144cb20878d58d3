"""A part of a tensor is assigned."""

import torch
from small import Small


class Model(Small):
    def mix(self, x):
        shifted = torch.zeros_like(x)
        shifted[:, 1:] = x[:, :-1]
        return super().mix(x + shifted)
