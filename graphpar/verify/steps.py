"""What one rank of a generated program does in training steps, in the order of train.py, and what comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from graphpar.runtime.axis import Executed
from graphpar.runtime.loss import over_data
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.norms import clip, gradient_norm
from graphpar.runtime.optimizer import adamw, set_rate
from graphpar.runtime.plan import Plan
from graphpar.runtime.random import Rng
from graphpar.runtime.settings import Settings, read_settings
from graphpar.verify.program import Batch, Program
from graphpar.verify.runs import Run, microbatches

CLIP = 0.05  # far below the norm of a random model's gradients, so that clipping acts
RATES = (1e-3, 3e-3, 2e-3)  # one per step
DECAY = 0.1
BETAS = (0.9, 0.95)

Parts = dict[str, Tensor]


@dataclass(frozen=True)
class Dropout:
    """Which numbers decide what is dropped."""

    seed: int
    rng: Rng


@dataclass(frozen=True)
class Step:
    """One step without an update, on one rank."""

    loss: Tensor
    norm: Tensor
    gradients: Parts
    log: tuple[Executed, ...]
    spread: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]  # (grad_sum, shard_axes) of each parameter


@dataclass(frozen=True)
class Trained:
    """The state after some steps of AdamW, on one rank."""

    losses: tuple[Tensor, ...]
    norms: tuple[Tensor, ...]
    parameters: Parts
    moments: dict[str, Parts]  # exp_avg and exp_avg_sq


def settings(plan: Plan, rows: int, length: int, microbatches: int) -> Settings:
    """The settings of a run with clipping and accumulation, through the same door as the command line."""
    words = f"--lr {RATES[0]} --min-lr 0 --clip {CLIP} --weight-decay {DECAY} --betas {BETAS[0]} {BETAS[1]}"
    sizes = f"--batch {rows * microbatches} --accumulate {microbatches} --seq {length} --steps {len(RATES)} --data"
    return read_settings(plan, [*words.split(), *sizes.split(), str(Path("none"))])


def losses(program: Program, mesh: Mesh, model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
    """The loss of each batch, without gradients."""
    run = Run(program, mesh, model)
    return [over_data(run.loss(batch), program.plan, mesh) for batch in batches]


def one_step(program: Program, mesh: Mesh, model: nn.Module, batch: Batch, dropout: Dropout | None = None) -> Step:
    """Forward, backward, sums of gradients, norm and loss."""
    run = Run(program, mesh, model, dropout.seed if dropout else 0)
    mesh.log = []
    share = run.step(microbatches(program, batch))
    norm = gradient_norm(model, mesh)
    with mesh.during("step"):
        loss = over_data(share, program.plan, mesh)
    log, mesh.log = tuple(mesh.log), None
    named = dict(model.named_parameters())
    gradients = {name: p.grad for name, p in named.items() if p.grad is not None}
    spread = {name: (p.grad_sum, p.shard_axes) for name, p in named.items()}  # pyright: ignore[reportAttributeAccessIssue]
    return Step(loss, norm, gradients, log, spread)


def drop(mesh: Mesh, model: nn.Module, dropout: Dropout | None) -> None:
    """Turn dropout on, if it is wanted."""
    if dropout is not None:
        mesh.rng = dropout.rng
        mesh.seed(dropout.seed)
        model.train()


def train(program: Program, mesh: Mesh, model: nn.Module, steps: Sequence[Sequence[Batch]]) -> Trained:
    """One update of AdamW for each list of microbatches."""
    rows, length = next(iter(steps[0][0].values())).shape
    optimizer = adamw(model, program.plan, settings(program.plan, rows, length, len(steps[0])))
    run = Run(program, mesh, model)
    totals: list[Tensor] = []
    norms: list[Tensor] = []
    for rate, batches in zip(RATES, steps, strict=True):
        share = run.step(batches)
        norms.append(clip(model, mesh, CLIP))
        set_rate(optimizer, rate)
        optimizer.step()
        optimizer.zero_grad()
        totals.append(over_data(share.double(), program.plan, mesh))
    named = dict(model.named_parameters())
    return Trained(tuple(totals), tuple(norms), {n: p.detach() for n, p in named.items()}, moments(optimizer, named))


def moments(optimizer: torch.optim.Optimizer, named: dict[str, nn.Parameter]) -> dict[str, Parts]:
    """Both moments of AdamW by parameter name."""
    return {
        key: {name: optimizer.state[p][key] for name, p in named.items() if p in optimizer.state}
        for key in ("exp_avg", "exp_avg_sq")
    }
