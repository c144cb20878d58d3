"""It needs two inputs besides the labels."""

import torch.nn.functional as F
from small import Small


class Model(Small):
    def forward(self, idx, positions, targets=None):
        logits = self.head(self.mix(self.embed(idx) + self.embed(positions)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
