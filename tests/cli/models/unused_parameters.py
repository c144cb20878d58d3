"""Some parameters do nothing."""

import torch
from small import Small
from torch import nn


class Model(Small):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(48, 48)
        self.scale = nn.Parameter(torch.ones(48))
        self.frozen = nn.Linear(48, 48).requires_grad_(False)
