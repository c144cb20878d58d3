"""Some parameters do not train; one block's output is detached; no_grad statistics scale another."""

import torch
from parts import Block, Decoder


class Model(Decoder):
    def __init__(self):
        super().__init__([Block() for _ in range(3)])
        self.tok.weight.requires_grad_(False)
        for p in self.blocks[0].parameters():
            p.requires_grad_(False)

    def run(self, x):
        for i, block in enumerate(self.blocks):
            y = block(x)
            x = y.detach() * 0.5 + y * 0.5 if i == 1 else y
        return x / x.pow(2).mean().sqrt().detach()


def model():
    return Model()
