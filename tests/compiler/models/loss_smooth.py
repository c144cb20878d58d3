"""Label smoothing, another ignored label, the classes in the second dimension."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        labels = labels.where(labels >= 0, 3)
        return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=3, label_smoothing=0.1)


def model():
    return Model([Block() for _ in range(2)])
