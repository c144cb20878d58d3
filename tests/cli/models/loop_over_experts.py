"""Rows are picked by what they hold, in a loop."""

import torch
from small import Small


class Model(Small):
    def mix(self, x):
        out = torch.zeros_like(x)
        chosen = x.sum(-1) > 0
        for expert in range(2):
            row, column = torch.where(chosen == expert)
            if row.numel() == 0:
                continue
            out[row, column] = super().mix(x[row, column])
        return out
