"""Rows are picked by a mask."""

import torch.nn.functional as F
from small import Small


class Model(Small):
    def forward(self, idx, targets=None):
        counted = targets != -100
        x = self.mix(self.embed(idx))
        logits = self.head(x[counted])
        return F.cross_entropy(logits, targets[counted])
