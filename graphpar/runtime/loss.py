"""The one place that divides: a step's loss is the sum over all its labels, on all ranks, over their number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from graphpar.runtime.data import Batch, check_shapes
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan

if TYPE_CHECKING:  # its module brings torch's pipelines, which are slow to import
    from graphpar.runtime.pipeline import Pipeline


def over_data(share: Tensor, plan: Plan, mesh: Mesh) -> Tensor:
    """The sum of every data rank's share."""
    return mesh.axis(plan.data_axes).all_reduce(share.detach())


def count_labels(model: Any, batches: Iterable[Batch], plan: Plan, mesh: Mesh) -> Tensor:
    """How many labels the loss counts in all `batches` of all ranks: int64, the divisor of each rank's share."""
    count = torch.zeros((), dtype=torch.int64, device=mesh.device)
    for batch in batches:
        check_shapes(batch, plan)
        count += model.count(**batch)
    return over_data(count, plan, mesh)


@torch.no_grad()
def held_out_loss(
    model: nn.Module,
    batches: Callable[[], Iterable[Batch]],
    plan: Plan,
    mesh: Mesh,
    autocast: torch.autocast,
    pipeline: Pipeline | None = None,
) -> float:
    """The mean loss over all labels of `batches()`, the same number on every rank. Dropout is off.

    A model that divides its loss by itself has one loss per batch, and this is their mean.
    """
    model.eval()
    count = {"count": count_labels(model, batches(), plan, mesh)} if plan.count else {}
    total, number = torch.zeros((), device=mesh.device), 0
    for batch in batches():
        if pipeline is not None:
            total = total + pipeline.evaluate(batch, count.get("count"))
        else:
            with autocast:
                total = total + model(**batch, **count).detach()
        number += 1
    model.train()
    return over_data(total, plan, mesh).item() / (1 if plan.count else number)


def matmul_precision(precision: str, device: torch.device) -> torch.autocast:
    """The context of each forward: under bf16, matmuls and the like compute in bfloat16; all sums stay in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")
