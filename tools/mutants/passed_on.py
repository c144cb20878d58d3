"""A small decoder whose every layer reads the embeddings as well: a stage of a pipeline has to pass them on."""

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """A feed-forward beside the stream; `first` are the embeddings."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x: Tensor, first: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x + 0.5 * first))))


class Decoder(nn.Module):
    """Token ids and labels, [batch, seq] each, to the mean loss."""

    def __init__(self, vocab: int = 48, width: int = 32, layers: int = 4) -> None:
        super().__init__()
        self.tok = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList([Block(width, 64) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = first = self.tok(ids)
        for block in self.blocks:
            x = block(x, first)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)


def tiny() -> Decoder:
    """What mutants are made of."""
    return Decoder()
