"""The loss by gathering log-probabilities, masked by hand."""

import torch.nn.functional as F
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        mask = labels != -100
        picked = F.log_softmax(logits, dim=-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        return -(picked * mask).sum() / mask.sum()


def model():
    return Model([Block() for _ in range(2)])
