"""A loss per token, masked and averaged by hand over the tokens that count."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        mask = (labels != -100).float()
        each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return (each * mask).sum() / mask.sum()


def model():
    return Model([Block() for _ in range(2)])
