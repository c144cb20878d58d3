"""Cross-entropy and a penalty on the logits' scale."""

import torch
from parts import Block, Decoder


class Model(Decoder):
    def loss(self, logits, labels):
        return super().loss(logits, labels) + 1e-2 * torch.logsumexp(logits, dim=-1).pow(2).mean()


def model():
    return Model([Block() for _ in range(2)])
