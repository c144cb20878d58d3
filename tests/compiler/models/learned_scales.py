"""Learned multipliers: one per block in a list, one vector per part, one scalar for the logits."""

import torch
from parts import Block, Decoder
from torch import nn


class Scaled(Block):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))
        self.gain = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        x = x + self.scale * self.attn(self.norm1(x))
        return x + self.gain * self.mlp(self.norm2(x))


class Model(Decoder):
    def __init__(self):
        super().__init__([Scaled() for _ in range(2)])
        self.multipliers = nn.ParameterList([nn.Parameter(torch.tensor(0.9 - 0.1 * i)) for i in range(2)])
        self.temperature = nn.Parameter(torch.ones(()))

    def run(self, x):
        first = x
        for block, multiplier in zip(self.blocks, self.multipliers):
            x = multiplier * block(x) + 0.1 * first
        return x

    def forward(self, input_ids, labels):
        logits = self.head(self.norm(self.run(self.embed(input_ids))))
        return self.loss(logits * self.temperature, labels)


def model():
    return Model()
