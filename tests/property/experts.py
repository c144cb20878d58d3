"""A mixture of experts in place of an MLP: a router, and what it chooses in one of several spellings."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from choices import Choices
from mlp import ACTIVATIONS
from torch import Tensor, nn


class Experts(nn.Module):
    """(batch, seq, width) -> (batch, seq, width). What it adds to the loss is left in `added`."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        self.gated = c.mlp not in ("plain", "matrices")
        wide = c.hidden * (2 if self.gated else 1)
        self.router = nn.Linear(c.width, c.experts, bias=c.bias)
        if c.expert_form == "batched":  # as the transformers library keeps them: out before in
            self.up = nn.Parameter(torch.zeros(c.experts, wide, c.width))
            self.down = nn.Parameter(torch.zeros(c.experts, c.width, c.hidden))
        else:
            self.up = nn.Parameter(torch.zeros(c.experts, c.width, wide))
            self.down = nn.Parameter(torch.zeros(c.experts, c.hidden, c.width))
        if c.expert_bias:
            self.up_bias = nn.Parameter(torch.zeros(c.experts, wide))
            self.down_bias = nn.Parameter(torch.zeros(c.experts, c.width))
        self.added: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, self.c.width)
        logits = self.router(tokens)
        weights, chosen = self.choice(logits)
        if self.c.balance != "nothing":
            self.added.append(self.balance(logits, chosen))
        match self.c.expert_form:
            case "sorted":
                y = self.sorted(tokens, weights, chosen)
            case "chosen":
                y = self.chosen(tokens, weights, chosen)
            case _:
                y = self.batched(tokens, weights, chosen)
        return y.view_as(x)

    def choice(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Of each token, the weights of its experts and which they are."""
        if self.c.weights == "softmax of the chosen":
            weights, chosen = logits.topk(self.c.topk, dim=-1)
            return weights.softmax(dim=-1), chosen
        weights, chosen = torch.topk(F.softmax(logits, dim=-1), self.c.topk, dim=-1)
        if self.c.weights == "normalised":
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return weights, chosen

    def balance(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """The loss that keeps experts balanced, or the one that keeps logits small."""
        if self.c.balance == "z":
            return 0.01 * torch.logsumexp(logits, dim=-1).square().mean()
        share = F.one_hot(chosen, self.c.experts).float().sum(dim=1).mean(dim=0) / self.c.topk
        return 0.1 * self.c.experts * (share * logits.softmax(-1).mean(dim=0)).sum()

    def inner(self, h: Tensor) -> Tensor:
        """Between both products."""
        activation = ACTIVATIONS[self.c.activation]
        if not self.gated:
            return activation(h)
        gate, up = h.chunk(2, dim=-1)
        return activation(gate) * up

    def sorted(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """Rows by expert, added back to their tokens."""
        expert = chosen.reshape(-1)
        order = torch.argsort(expert)
        owner, expert = order // self.c.topk, expert[order]
        h = (tokens[owner].unsqueeze(1) @ self.up[expert]).squeeze(1)
        h = self.inner(h + self.up_bias[expert] if self.c.expert_bias else h)
        y = (h.unsqueeze(1) @ self.down[expert]).squeeze(1)
        y = y + self.down_bias[expert] if self.c.expert_bias else y
        y = y * weights.reshape(-1)[order].unsqueeze(-1)
        return torch.zeros_like(tokens).index_add(0, owner, y)

    def chosen(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """The matrices of each token's experts."""
        h = torch.einsum("tw,tkwh->tkh", tokens, self.up[chosen])
        h = self.inner(h + self.up_bias[chosen] if self.c.expert_bias else h)
        y = torch.einsum("tkh,tkhw->tkw", h, self.down[chosen])
        y = y + self.down_bias[chosen] if self.c.expert_bias else y
        return (y * weights.unsqueeze(-1)).sum(dim=1)

    def batched(self, tokens: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
        """A product for each choice of each token, as the transformers library has it."""
        expert = chosen.reshape(-1)
        rows = tokens.repeat_interleave(self.c.topk, dim=0)
        h = torch.bmm(self.up[expert], rows.unsqueeze(-1)).squeeze(-1)
        h = self.inner(h + self.up_bias[expert] if self.c.expert_bias else h)
        y = torch.bmm(self.down[expert], h.unsqueeze(-1)).squeeze(-1)
        y = y + self.down_bias[expert] if self.c.expert_bias else y
        y = y * weights.reshape(-1).unsqueeze(-1)
        return y.view(tokens.shape[0], self.c.topk, self.c.width).sum(dim=1)
