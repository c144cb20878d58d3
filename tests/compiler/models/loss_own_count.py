"""A summed loss over the number of labels that the model counts itself, never less than one."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        total = F.cross_entropy(logits.view(-1, 32), labels.view(-1), ignore_index=-100, reduction="sum")
        return total / (labels != -100).sum().clamp(min=1)


def model():
    return Model([Block() for _ in range(2)])
