"""What the models here have in common: an embedding, a feed-forward part, a head, a loss."""

import torch.nn.functional as F
from torch import nn


class Small(nn.Module):
    def __init__(self, width=48, vocab=97):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.up = nn.Linear(width, 3 * width)
        self.down = nn.Linear(3 * width, width)
        self.head = nn.Linear(width, vocab)

    def mix(self, x):
        return x + self.down(F.gelu(self.up(x)))

    def forward(self, idx, targets=None):
        logits = self.head(self.mix(self.embed(idx)))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())
