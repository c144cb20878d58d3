"""A cross-entropy that is summed, and divided by the number of all tokens."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        total = F.cross_entropy(logits.view(-1, 32), labels.view(-1), reduction="sum")
        return total / labels.numel()


def model():
    return Model([Block() for _ in range(2)])
