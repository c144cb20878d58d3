"""Mixture-of-experts without routing: what every layout of it has to compute."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphpar.runtime import (
    all_reduce,
    all_rows,
    combine,
    dispatch,
    exchange_counts,
    expert_bias,
    expert_linear,
    grad_all_reduce,
    own_counts,
    own_rows,
    route,
    to_experts,
    to_tokens,
)

WIDTH, INNER = 3, 5


@dataclass
class Layer:
    """All tokens and all experts: x [tokens, d], chosen and weights [tokens, topk], up [experts, f, d], .."""

    x: Tensor
    chosen: Tensor
    weights: Tensor
    up: Tensor
    bias: Tensor
    down: Tensor  # [experts, f, d]: transposed
    target: Tensor
    kept: Tensor | None = None

    def leaves(self):
        return [self.x, self.weights, self.up, self.bias, self.down]


def layer(chosen, experts, kept=None):
    generator = torch.Generator().manual_seed(1)

    def some(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    tokens, topk = chosen.shape
    leaves = some(tokens, WIDTH), some(tokens, topk), some(experts, INNER, WIDTH), some(experts, INNER)
    x, weights, up, bias = (leaf.requires_grad_() for leaf in leaves)
    down = some(experts, INNER, WIDTH).requires_grad_()
    return Layer(x, chosen, weights, up, bias, down, some(tokens, WIDTH), kept)


def loss(y, target):
    return ((y + 1).square() * target).sum()


def dense(whole):
    """The result, and the gradients of all leaves: a loop over the experts and slots."""
    y = torch.zeros_like(whole.x)
    for expert in range(len(whole.up)):
        hidden = (whole.x @ whole.up[expert].t() + whole.bias[expert]).tanh() @ whole.down[expert]
        for slot in range(whole.chosen.shape[1]):
            takes = whole.chosen[:, slot] == expert
            if whole.kept is not None:
                takes = takes & whole.kept[:, slot]
            y = y + hidden * (whole.weights[:, slot] * takes).unsqueeze(1)
    return [y.detach(), *torch.autograd.grad(loss(y, whole.target), whole.leaves())]


def expert_layer(rows, up, bias, down, routing):
    hidden = expert_bias(expert_linear(rows, up, routing), bias, routing).tanh()
    return expert_linear(hidden, down, routing, transposed=True)


def _leaf(x):
    return x.detach().clone().requires_grad_()


def by_tokens(whole, axis, tokens):
    """The same where rank r has the next tokens[r] tokens and its block of experts; its results are its parts."""
    x, weights, target, chosen = (
        part.split(tokens)[axis.rank] for part in (whole.x, whole.weights, whole.target, whole.chosen)
    )
    mask = None if whole.kept is None else whole.kept.split(tokens)[axis.rank]
    up, bias, down = (w.chunk(axis.size)[axis.rank] for w in (whole.up, whole.bias, whole.down))
    x, weights, up, bias, down = leaves = [_leaf(part) for part in (x, weights, up, bias, down)]
    routing = route(chosen, experts=len(whole.up), kept=mask)
    routed = exchange_counts(routing, axis)
    rows = to_experts(dispatch(x, routing), routed, axis)
    rows = to_tokens(expert_layer(rows, up, bias, down, routed), routed, axis)
    y = combine(rows, weights, routing)
    loss(y, target).backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]


def by_experts(whole, axis):
    """The same where every rank has all tokens, and computes the rows of its own block of experts."""
    up, bias, down = (w.chunk(axis.size)[axis.rank] for w in (whole.up, whole.bias, whole.down))
    x, weights, up, bias, down = leaves = [_leaf(part) for part in (whole.x, whole.weights, up, bias, down)]
    routing = route(whole.chosen, experts=len(whole.up), kept=whole.kept)
    own = own_counts(routing, axis)
    rows = own_rows(dispatch(grad_all_reduce(x, axis), routing), own, axis)
    rows = all_rows(expert_layer(rows, up, bias, down, own), own, axis)
    y = all_reduce(combine(rows, grad_all_reduce(weights, axis), routing), axis)
    loss(y, whole.target).backward()
    return [y.detach(), *(leaf.grad for leaf in leaves)]
