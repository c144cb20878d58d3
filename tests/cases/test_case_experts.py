"""Mixtures of experts as people write them, updates in place, and losses that blocks leave behind."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from parts import Block, Decoder
from torch import nn
from written import DP2, Written

from graphpar.errors import GraphparError
from graphpar.ir.axes import spell_all
from graphpar.names.named import name


class Router(nn.Module):
    """Two of six experts for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(32, 6, bias=False)
        self.up = nn.Parameter(torch.randn(6, 32, 20) * 0.1)
        self.down = nn.Parameter(torch.randn(6, 20, 32) * 0.1)

    def chosen(self, x):
        scores = self.gate(x).softmax(-1)
        weights, ids = torch.topk(scores, 2, dim=-1)
        weights /= weights.sum(-1, keepdim=True)
        return scores, weights, ids


class Dense(Router):
    """Every expert for every token, weighted by a one-hot code."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        gates = (F.one_hot(ids, 6) * weights.unsqueeze(-1)).sum(-2)
        inside = F.silu(torch.einsum("bsd,edf->bsef", x, self.up))
        return torch.einsum("bsef,efd,bse->bsd", inside, self.down, gates)


class Looked(Router):
    """The weights of the chosen experts are looked up."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        inside = F.silu(torch.einsum("bsd,bskdf->bskf", x, self.up[ids]))
        return torch.einsum("bskf,bskfd,bsk->bsd", inside, self.down[ids], weights)


class Scattered(Router):
    """Weights put in place into zeros."""

    def forward(self, x):
        _, weights, ids = self.chosen(x)
        gates = torch.zeros_like(weights).sum(-1, keepdim=True).repeat_interleave(6, dim=-1)
        gates = gates.scatter(-1, ids, weights)
        gates.clamp_(min=0.0)
        inside = F.silu(torch.einsum("bsd,edf->bsef", x, self.up))
        return torch.einsum("bsef,efd,bse->bsd", inside, self.down, gates)


class First(Router):
    """One expert for each token, by the largest score."""

    def forward(self, x):
        best, at = self.gate(x).sigmoid().max(-1)
        inside = F.silu(torch.einsum("bsd,bsdf->bsf", x, self.up[at]))
        return torch.einsum("bsf,bsfd->bsd", inside, self.down[at]) * best.unsqueeze(-1)


class Halves(nn.Module):
    """A value that is made empty and filled part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(32, 12), nn.Linear(32, 20)

    def forward(self, x):
        y = x.new_empty(*x.shape)
        y[..., :12].copy_(self.a(x))
        y[..., 12:].copy_(self.b(x))
        return y


class Shifted(nn.Module):
    """The token before, put in place behind a zero."""

    def forward(self, x):
        before = torch.zeros_like(x)
        before[:, 1:] = x[:, :-1]
        return before * 0.5


class Balanced(Dense):
    """Leaves a loss of its own behind."""

    def forward(self, x):
        scores, _, ids = self.chosen(x)
        counts = F.one_hot(ids, 6).float().sum((0, 1, 2))
        self.balance = (counts * scores.mean((0, 1))).sum()
        return super().forward(x)


class Stashed(Decoder):
    def loss(self, logits, labels):
        return super().loss(logits, labels) + 0.01 * sum(block.mlp.balance for block in self.blocks)


class Hooked(Decoder):
    """Scores are collected by hooks that the first run registers."""

    def forward(self, input_ids, labels):
        if not hasattr(self, "collected"):
            for block in self.blocks:
                block.mlp.gate.register_forward_hook(lambda module, given, made: self.collected.append(made))
        self.collected = []
        loss = super().forward(input_ids, labels)
        return loss + 0.1 * torch.stack([s.logsumexp(-1).square().mean() for s in self.collected]).sum()


def blocks(mlp: type[nn.Module], count: int = 3) -> list[nn.Module]:
    return [Block(mlp=mlp()) for _ in range(count)]


WRITTEN = {
    "all experts": lambda: Decoder(blocks(Dense)),
    "looked up": lambda: Decoder(blocks(Looked)),
    "scattered": lambda: Decoder(blocks(Scattered)),
    "the first": lambda: Decoder(blocks(First)),
    "filled in parts": lambda: Decoder(blocks(Halves)),
    "shifted in place": lambda: Decoder(blocks(Shifted)),
    "a loss on the block": lambda: Stashed(blocks(Balanced)),
    "scores from hooks": lambda: Hooked(blocks(Dense)),
}


@pytest.mark.parametrize("words", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in WRITTEN])
def test_the_program_is_what_was_written(words: str) -> None:
    Written(WRITTEN[words]).holds(DP2)


@pytest.mark.parametrize("mlp", [Dense, Looked, Scattered, First])
def test_experts_are_found_however_they_are_written(mlp: type[nn.Module]) -> None:
    named = name(Written(lambda: Decoder(blocks(mlp))).captured.graph)
    axes = {n.attrs["name"].rpartition(".mlp.")[2]: spell_all(n.named) for n in named.graph if n.op == "parameter"}
    assert axes["gate.weight"] == "experts d_model"
    assert axes["up"] == "experts d_model d_ff"
    assert axes["down"] == "experts d_ff d_model"


@pytest.mark.parametrize("words", ["a loss on the block", "scores from hooks"])
def test_what_blocks_leave_behind_is_that_of_every_block(words: str) -> None:
    graph = Written(WRITTEN[words]).captured.graph
    assert not graph.loops
    read = {n.attrs["name"] for n in graph if n.op == "parameter" and n.attrs["name"].endswith("gate.weight")}
    assert read == {f"blocks.{i}.mlp.gate.weight" for i in range(3)}


def test_a_model_is_as_it_was_after_its_capture() -> None:
    model = Hooked(blocks(Dense))
    assert Written(lambda: model).captured
    assert not hasattr(model, "collected")
    assert not any(m._forward_hooks for m in model.modules())


class ReadBefore(nn.Module):
    """A part is taken, the whole is changed, and then the part is read."""

    def forward(self, x):
        y = x * 2
        part = y[..., :12]
        y[..., 4:20].copy_(x[..., 4:20])
        return torch.cat([part, y[..., 12:]], -1)


class Turned(nn.Module):
    """A part of a value that lies another way."""

    def forward(self, x):
        y = x * 2
        y.transpose(1, 2)[:, :12].copy_(x.transpose(1, 2)[:, 12:24])
        return y


@pytest.mark.parametrize("mlp", [ReadBefore, Turned])
def test_an_update_of_a_part_that_something_else_reads_is_refused(mlp: type[nn.Module]) -> None:
    with pytest.raises(GraphparError) as caught:
        Written(lambda: Decoder([Block(mlp=mlp()), Block()])).compiled(DP2)
    assert "in place" in str(caught.value.diagnostics[0].message) or "in-place" in caught.value.diagnostics[0].code
