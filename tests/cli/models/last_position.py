"""Without targets, only the last position's logits are computed."""

import torch.nn.functional as F
from small import Small


class Model(Small):
    def forward(self, idx, targets=None):
        x = self.mix(self.embed(idx))
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
