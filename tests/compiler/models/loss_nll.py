"""The loss as nll_loss of log_softmax."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        return F.nll_loss(F.log_softmax(logits, dim=-1).view(-1, 32), labels.view(-1))


def model():
    return Model([Block() for _ in range(2)])
