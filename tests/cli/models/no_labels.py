"""The argument with the labels has a name of its own."""

import torch.nn.functional as F
from small import Small


class Model(Small):
    def forward(self, idx, truth=None):
        logits = self.head(self.mix(self.embed(idx)))
        return logits, F.cross_entropy(logits.flatten(0, 1), truth.flatten())
