"""Dropout that evaluation does not end."""

import torch.nn.functional as F
from small import Small


class Model(Small):
    def mix(self, x):
        return super().mix(F.dropout(x, 0.1))
