"""A function whose gradient is not that of its operations."""

import torch
from small import Small


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Model(Small):
    def mix(self, x):
        return super().mix(Rounded.apply(x))
