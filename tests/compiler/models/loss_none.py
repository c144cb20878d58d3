"""A loss per token, weighted by position and averaged by hand."""

import torch
import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        each = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        weight = torch.linspace(1, 2, 16)[: labels.shape[1]].to(each)
        return (each * weight).mean()


def model():
    return Model([Block() for _ in range(2)])
