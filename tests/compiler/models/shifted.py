"""Labels shifted inside, by slicing logits and labels."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        logits, labels = logits[:, :-1].contiguous(), labels[:, 1:].contiguous()
        return F.cross_entropy(logits.view(-1, 32), labels.view(-1))


def model():
    return Model([Block() for _ in range(2)])
