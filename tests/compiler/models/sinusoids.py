"""Sinusoidal positions made in forward, a prefix token that every row starts with, and its output dropped."""

import torch
from parts import Block, Decoder
from torch import nn


class Model(Decoder):
    def __init__(self):
        super().__init__([Block() for _ in range(2)])
        self.prefix = nn.Parameter(torch.randn(1, 1, 32))

    def embed(self, input_ids):
        x = torch.cat((self.prefix.expand(input_ids.shape[0], -1, -1), self.tok(input_ids)), dim=1)
        at = torch.arange(x.shape[1], device=x.device).float().unsqueeze(1)
        rate = torch.exp(torch.arange(0, 32, 2, device=x.device).float() * (-4.6 / 32))
        return x + torch.cat((torch.sin(at * rate), torch.cos(at * rate)), dim=-1)

    def run(self, x):
        return super().run(x)[:, 1:]


def model():
    return Model()
