"""A small decoder that follows its `Choices`: one spelling of each part for each word."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from attention import Attention
from choices import LONGEST, Choices
from experts import Experts
from mlp import MLP
from norms import norm
from torch import Tensor, nn


class Block(nn.Module):
    """Attention and MLP around a residual stream."""

    def __init__(self, c: Choices, attention: nn.Module | None = None, mlp: nn.Module | None = None) -> None:
        super().__init__()
        self.c = c
        self.attn, self.mlp = attention or Attention(c), mlp or fed(c)
        self.norm1 = norm(c.norm, c.width)
        if c.norms != "shared":
            self.norm2 = norm(c.norm, c.width)
        if c.norms == "sandwich":
            self.after1, self.after2 = norm(c.norm, c.width), norm(c.norm, c.width)
        if c.residual == "scaled":
            self.scale, self.gain = nn.Parameter(torch.ones(c.width)), nn.Parameter(torch.tensor(0.5))
        self.drop = nn.Dropout(c.dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.c.norms == "post":
            return self.post(x)
        if self.c.norms == "shared":
            h = self.norm1(x)
            return x + self.attn(h) + self.drop(self.mlp(h))
        if self.c.residual == "parallel":
            return x + self.drop(self.attended(x)) + self.drop(self.fed(x))
        if self.c.residual == "scaled":
            x = x + self.scale * self.attended(x)
            return x + self.gain * self.fed(x)
        x = x + self.drop(self.attended(x))
        return x + self.drop(self.fed(x))

    def post(self, x: Tensor) -> Tensor:
        if self.c.residual == "parallel":
            return self.norm2(self.norm1(x + self.attn(x) + self.mlp(x)))
        if self.c.residual == "scaled":
            x = self.norm1(x + self.scale * self.attn(x))
            return self.norm2(self.gain * x + self.mlp(x))
        x = self.norm1(x + self.drop(self.attn(x)))
        return self.norm2(x + self.drop(self.mlp(x)))

    def attended(self, x: Tensor) -> Tensor:
        y = self.attn(self.norm1(x))
        return self.after1(y) if self.c.norms == "sandwich" else y

    def fed(self, x: Tensor) -> Tensor:
        y = self.mlp(self.norm2(x))
        return self.after2(y) if self.c.norms == "sandwich" else y


class Decoder(nn.Module):
    """Embedding, positions, blocks, head and loss."""

    def __init__(self, c: Choices) -> None:
        super().__init__()
        self.c = c
        narrow = c.stream == "narrow embedding"
        self.tok = nn.Embedding(c.vocab, 12 if narrow else c.width)
        if c.positions == "learned":
            self.pos = nn.Embedding(LONGEST, c.width)
        if c.positions == "learned parameter":
            self.pos = nn.Parameter(torch.zeros(1, LONGEST, c.width))
        if c.embedding == "normed":
            self.first_norm = norm(c.norm, c.width)
        if narrow:
            self.widen = nn.Linear(12, c.width, bias=False)
        if c.stream == "lambdas":
            self.lambdas = nn.Parameter(torch.full((c.layers, 2), 0.5))
        if c.stream == "kept":
            self.mix = nn.Parameter(torch.ones(c.layers + 1))
        self.drop = nn.Dropout(c.dropout)
        self.blocks = blocks(c)
        self.norm = norm(c.norm, c.width) if c.final_norm else nn.Identity()
        if c.head in ("free", "biased", "tied"):
            self.head = nn.Linear(c.width, c.vocab, bias=c.head == "biased")
        if c.head == "tied":
            self.head.weight = self.tok.weight
        if c.logits == "divided by a buffer":
            self.register_buffer("temperature", torch.tensor(1.5))

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x = self.embed(input_ids)
        x = self.norm(self.run(x))
        if self.c.shift == "hidden":
            x, labels = x[:, :-1], labels[:, 1:]
        return sum(self.added(), self.loss(*self.shifted(self.capped(self.logits(x)), labels)))

    def added(self) -> Iterator[Tensor]:
        """What mixtures of experts add to the loss."""
        for mixture in (m for m in self.modules() if isinstance(m, Experts)):
            while mixture.added:
                yield mixture.added.pop(0)

    def run(self, x: Tensor) -> Tensor:
        """The blocks, with what flows beside them."""
        first, kept = x, [x]
        for i in range(self.c.layers):
            if self.c.stream == "lambdas":
                x = self.lambdas[i, 0] * x + self.lambdas[i, 1] * first
            x = self.blocks[0 if self.c.shared == "layer" else i](x)
            if self.c.stream == "first":
                x = x + 0.1 * first
            if self.c.stream == "centred":
                x = x - x.mean(-1, keepdim=True)
            kept.append(x)
        if self.c.stream == "kept":
            return (torch.stack(kept, dim=-1) * self.mix).sum(-1)
        return x / x.pow(2).mean().sqrt().detach() if self.c.stream == "detached" else x

    def embed(self, input_ids: Tensor) -> Tensor:
        x = self.tok(input_ids)
        if self.c.stream == "narrow embedding":
            x = self.widen(x)
        if self.c.embedding == "scaled":
            x = x * math.sqrt(self.c.width)
        if self.c.positions == "learned":
            x = x + self.pos(torch.arange(input_ids.shape[1], device=input_ids.device))
        if self.c.positions == "learned parameter":
            x = x + self.pos[:, : input_ids.size(1)]
        return self.drop(self.first_norm(x) if self.c.embedding == "normed" else x)

    def logits(self, x: Tensor) -> Tensor:
        if self.c.head == "F.linear":
            return F.linear(x, self.tok.weight)
        return x @ self.tok.weight.t() if self.c.head == "matmul" else self.head(x)

    def capped(self, logits: Tensor) -> Tensor:
        match self.c.logits:
            case "scaled":
                return logits * self.c.width**-0.5
            case "capped":
                return 5.0 * torch.tanh(logits / 5.0)
            case "divided by a buffer":
                return logits.float() / self.temperature
            case _:
                return logits

    def shifted(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        match self.c.shift:
            case "slices":
                return logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
            case "pad labels":
                return logits, F.pad(labels, (0, 1), value=-100)[:, 1:].contiguous()
            case "cat labels":
                return logits, torch.cat((labels[:, 1:], torch.full_like(labels[:, :1], -100)), dim=1)
            case _:
                return logits, labels

    def loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        flat, wanted = logits.flatten(0, 1), labels.flatten()
        match self.c.loss:
            case "view":
                return F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
            case "flatten":
                return F.cross_entropy(flat, wanted)
            case "transpose":
                return F.cross_entropy(logits.transpose(1, 2), labels)
            case "smooth":
                return F.cross_entropy(flat, wanted, label_smoothing=0.1)
            case "sum":
                return F.cross_entropy(flat, wanted, reduction="sum") / (wanted != -100).sum()
            case _:
                counted = (wanted != -100).to(flat.dtype)
                return (F.cross_entropy(flat, wanted, reduction="none") * counted).sum() / counted.sum()


def fed(c: Choices) -> nn.Module:
    """The part behind attention."""
    return Experts(c) if c.experts else MLP(c)


def blocks(c: Choices) -> nn.ModuleList:
    """The blocks, with what they share."""
    if c.shared == "layer":
        return nn.ModuleList([Block(c)])
    attention = Attention(c) if c.shared == "attention" else None
    mlp = fed(c) if c.shared == "mlp" else None
    return nn.ModuleList(
        [Block(c, attention, mlp) if i % 2 == 0 else second(c, attention, mlp) for i in range(c.layers)]
    )


def second(c: Choices, attention: nn.Module | None, mlp: nn.Module | None) -> Block:
    """Every second block."""
    match c.second:
        case "hidden":
            return Block(replace(c, hidden=c.hidden + 12))
        case "activation":
            return Block(replace(c, activation="silu" if c.activation != "silu" else "gelu"))
        case "window":
            return Block(c, Attention(c, window=4))
        case _:
            return Block(c, attention, mlp)
