"""What a run says of itself before the first step."""

from torch import nn

from graphpar.runtime.grid import spelled
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.optimizer import DecayGroups
from graphpar.runtime.plan import Plan
from graphpar.runtime.say import say
from graphpar.runtime.settings import Settings


def announce(model: nn.Module, plan: Plan, settings: Settings, mesh: Mesh) -> None:
    """Say, on rank 0, what is trained on what, in which precision and with which groups of weight decay."""
    whole = sum(_count(stored.shape) for stored in plan.parameters.values())
    here = sum(parameter.numel() for parameter in model.parameters())
    matmuls = "bfloat16" if settings.precision == "bf16" else "their own precision"
    where = "on each rank" if plan.pipeline is None else "on rank 0"
    say(f"mesh {spelled(plan.mesh)} on {mesh.device.type}: {whole:,} parameters, {here:,} {where}")
    say(
        f"{settings.steps} steps of {settings.batch} x {settings.seq} = {settings.tokens:,} tokens"
        f" in {settings.accumulate} microbatch{'es' if settings.accumulate > 1 else ''}"
    )
    if plan.pipeline is not None:
        stages = ", ".join(
            f"{stage.layers.start}-{stage.layers.stop - 1}" for stage in plan.pipeline.stages if stage.layers
        )
        say(f"pipeline over {plan.pipeline.axis}, {plan.pipeline.schedule}: stages of layers {stages}")
    say(f"matmuls in {matmuls}; parameters, gradients and their sums in float32 or wider")
    say(f"AdamW: {DecayGroups.of(plan)}")


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total
