"""The same steps on one device in plain PyTorch: whole tensors, whole batches, torch's own clipping and AdamW."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from graphpar.verify.program import Batch
from graphpar.verify.steps import BETAS, CLIP, DECAY, RATES, Parts, Trained, moments

Loss = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Gradients:
    """One step on one device."""

    loss: Tensor
    norm: Tensor
    gradients: Parts


def gradients(parameters: dict[str, nn.Parameter], loss: Loss, batch: Batch) -> Gradients:
    """Loss, gradients and their norm; the parameters keep no gradient."""
    value = loss(batch)
    wanted = {name: p for name, p in parameters.items() if p.requires_grad}
    found = torch.autograd.grad(value, list(wanted.values()), allow_unused=True)
    named: Parts = {
        name: g for name, g in zip(wanted, cast("tuple[Tensor | None, ...]", found), strict=True) if g is not None
    }
    norm = torch.stack([g.double().square().sum() for g in named.values()]).sum().sqrt()
    return Gradients(value.detach(), norm, named)


def trained(parameters: dict[str, nn.Parameter], loss: Loss, batches: Sequence[Batch]) -> Trained:
    """One update of AdamW for each batch; matrices decay and vectors do not. Changes the parameters."""
    matrices = [p for p in parameters.values() if p.dim() >= 2]
    vectors = [p for p in parameters.values() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATES[0], betas=BETAS, foreach=False)
    losses: list[Tensor] = []
    norms: list[Tensor] = []
    for rate, batch in zip(RATES, batches, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        value = loss(batch)
        value.backward()
        losses.append(value.detach())
        norms.append(nn.utils.clip_grad_norm_(parameters.values(), CLIP))
        optimizer.step()
    values = {name: p.detach() for name, p in parameters.items()}
    return Trained(tuple(losses), tuple(norms), values, moments(optimizer, parameters))
