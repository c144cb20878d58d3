"""Blocks that differ in one number they were made with, in a buffer, and in what the loop around them does."""

import torch
from parts import Block, Decoder


class Indexed(Block):
    def __init__(self, index):
        super().__init__()
        self.scale = 1 / (index + 1)
        self.register_buffer("shift", torch.full((32,), 0.1 * (index % 2)))

    def forward(self, x):
        return super().forward(x) * self.scale + self.shift


class Model(Decoder):
    def run(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i == 1:
                x = x * 2
        return x


def model():
    return Model([Indexed(i) for i in range(4)])
