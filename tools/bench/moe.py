"""A mixture of experts that is measured, as its author wrote it for one device. It knows nothing of graphpar."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class MixtureSizes:
    """What varies between measurements."""

    width: int = 128
    experts: int = 8
    topk: int = 2
    vocab: int = 64
    length: int = 64  # the longest sequence

    @property
    def hidden(self) -> int:
        """The width inside an expert."""
        return 2 * self.width


class MoE(nn.Module):
    """Each token goes through the best of the experts, SwiGLUs whose gate and up lie in one matrix."""

    def __init__(self, sizes: MixtureSizes) -> None:
        super().__init__()
        self.topk = sizes.topk
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        self.gate_up = nn.Parameter(torch.randn(sizes.experts, sizes.width, 2 * sizes.hidden) * sizes.width**-0.5)
        self.down = nn.Parameter(torch.randn(sizes.experts, sizes.hidden, sizes.width) * sizes.hidden**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.topk, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)

        expert = chosen.flatten()
        order = expert.argsort()
        expert, owner = expert[order], order // self.topk
        rows = tokens[owner].unsqueeze(1)
        gate, up = (rows @ self.gate_up[expert]).squeeze(1).chunk(2, -1)
        rows = ((F.silu(gate) * up).unsqueeze(1) @ self.down[expert]).squeeze(1)
        rows = rows * weights.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, owner, rows).view_as(x)


class Mixture(nn.Module):
    """Token ids and labels [batch, length] -> the mean loss, of one mixture between embeddings and a small head."""

    def __init__(self, sizes: MixtureSizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.moe = MoE(sizes)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        logits = self.head(x + self.moe(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
