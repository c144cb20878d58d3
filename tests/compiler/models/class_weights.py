"""A loss that weighs the classes."""

import torch
import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def __init__(self):
        super().__init__([Block() for _ in range(2)])
        self.register_buffer("weights", torch.linspace(1, 2, 32))

    def loss(self, logits, labels):
        return F.cross_entropy(logits.view(-1, 32), labels.view(-1), weight=self.weights)


def model():
    return Model()
