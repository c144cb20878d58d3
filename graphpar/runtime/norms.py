"""The norm of all gradients of the model, and what is decided by it: the same on every rank."""

import torch
from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.parameters import spread
from graphpar.runtime.stages import Stages


@torch.no_grad()
def gradient_norm(model: nn.Module, mesh: Mesh) -> Tensor:
    """The 2-norm of all gradients, each element of the source's parameters counted once.

    A gradient that several ranks hold alike enters as the mean of their squares. So one all-reduce over the whole mesh
    gives the same bits everywhere, whatever parameters a rank holds. If any gradient is NaN or infinite, the norm is.
    """
    groups: dict[tuple[int, torch.dtype], list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            key = _copies(name, parameter, model, mesh), parameter.grad.dtype
            groups.setdefault(key, []).append(parameter.grad)
    total = torch.zeros((), dtype=torch.float64, device=mesh.device)
    for (copies, dtype), gradients in groups.items():
        norms = torch._foreach_norm(gradients, 2.0, dtype=_wide(dtype))  # pyright: ignore[reportPrivateUsage]
        total += torch.stack(norms).double().square().sum() / copies
    wide = any(dtype == torch.float64 for _, dtype in groups)
    with mesh.during("step"):
        if isinstance(model, Stages):  # ranks hold different parameters, and must find the same dtype
            total, wides = mesh.world.all_reduce(torch.stack([total, torch.full_like(total, wide)])).unbind()
            wide = bool(wides)
        else:
            total = mesh.world.all_reduce(total)
    return total.sqrt().to(torch.float64 if wide else torch.float32)


def clip(model: nn.Module, mesh: Mesh, max_norm: float) -> Tensor:
    """Scale gradients down to `max_norm`, as `torch.nn.utils.clip_grad_norm_` does; returns the norm before."""
    norm = gradient_norm(model, mesh)
    nn.utils.clip_grads_with_norm_(model.parameters(), max_norm, norm)
    return norm


@torch.no_grad()
def all_finite(model: nn.Module, mesh: Mesh) -> bool:
    """Whether every gradient on every rank is finite: one answer for all, before any of them changes its state."""
    bad = torch.zeros((), dtype=torch.int32, device=mesh.device)
    for parameter in model.parameters():
        if parameter.grad is not None:
            bad |= ~parameter.grad.isfinite().all()
    with mesh.during("step"):
        return not mesh.world.all_reduce(bad, "max")


def _copies(name: str, parameter: Tensor, model: nn.Module, mesh: Mesh) -> int:
    """How many ranks hold the same part."""
    shards = 1
    for axis in spread(name, parameter).shard_axes:
        shards *= mesh.sizes[axis]
    if isinstance(model, Stages):
        return mesh.world.size // shards // model.axis.size * len(model.shared.get(name, (model.axis.rank,)))
    return mesh.world.size // shards


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
