"""AdamW over the shards, with weight decay decided by the parameters of the source model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from graphpar.runtime.plan import Plan
from graphpar.runtime.settings import Settings


@dataclass(frozen=True)
class DecayGroups:
    """The names of the trainable parameters, by whether weight decay pulls at them."""

    decayed: tuple[str, ...]
    kept: tuple[str, ...]

    @classmethod
    def of(cls, plan: Plan) -> DecayGroups:
        """Matrices decay; biases and norms do not. The shape is the source's: a shard may have fewer dims."""
        trainable = {name: stored for name, stored in plan.parameters.items() if stored.trainable}
        return cls(
            decayed=tuple(name for name, stored in trainable.items() if len(stored.shape) >= 2),
            kept=tuple(name for name, stored in trainable.items() if len(stored.shape) < 2),
        )

    def __str__(self) -> str:
        return f"{len(self.decayed)} parameters with weight decay, {len(self.kept)} without"


def adamw(model: nn.Module, plan: Plan, settings: Settings) -> torch.optim.AdamW:
    """AdamW with the two groups, in one fused kernel per group where the device has it."""
    groups = DecayGroups.of(plan)
    parameters = dict(model.named_parameters())

    def held(names: tuple[str, ...]) -> list[nn.Parameter]:
        return [parameters[name] for name in names if name in parameters]  # of a pipeline, a rank holds some

    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in parameters.values())
    return torch.optim.AdamW(
        [
            {"params": held(groups.decayed), "weight_decay": settings.weight_decay},
            {"params": held(groups.kept), "weight_decay": 0.0},
        ],
        lr=settings.lr,
        betas=settings.betas,
        fused=fused,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` in the next step, for every parameter."""
    for group in optimizer.param_groups:
        group["lr"] = rate
