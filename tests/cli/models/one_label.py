import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Model(nn.Module):
    """A label for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.score = nn.Linear(32, 5)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        logits = self.score(torch.tanh(self.embed(ids))[:, -1])
        return F.cross_entropy(logits, labels)
