"""Blocks are given one dimension of tokens, and batch and seq as numbers."""

import torch.nn.functional as F
from parts import Block, Decoder


class Flat(Block):
    def forward(self, x, batch, seq):
        y = self.attn(self.norm1(x).view(batch, seq, -1))
        x = x + y.flatten(0, 1)
        return x + self.mlp(self.norm2(x))


class Model(Decoder):
    def __init__(self):
        super().__init__([Flat() for _ in range(2)])

    def forward(self, input_ids, labels):
        x = self.embed(input_ids).flatten(0, 1)
        for block in self.blocks:
            x = block(x, *input_ids.shape)
        return F.cross_entropy(self.head(self.norm(x)), labels.flatten())


def model():
    return Model()
