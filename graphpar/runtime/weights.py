"""The weights for the source model: one .safetensors file with its names and full shapes."""

from __future__ import annotations

import json
from pathlib import Path

from torch import Tensor, nn

from graphpar.runtime import tensor_file
from graphpar.runtime.files import whole_file
from graphpar.runtime.initialise import held_tensors
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan
from graphpar.runtime.whole import gather_full, require_equal_replicas


def save_weights(path: Path, model: nn.Module, plan: Plan, mesh: Mesh) -> None:
    """Write every parameter and persistent buffer, whole and without padding. All ranks must call it.

    One tensor at a time is gathered; rank 0 writes. A tied tensor is stored once, under its first name; the metadata
    entry `aliases` gives its other names, which the source model's strict `load_state_dict` asks for
    (`safetensors.torch.load_model` fills them in by itself). Raises ReplicaError when ranks have drifted apart.
    """
    held = held_tensors(model, plan)
    require_equal_replicas(held, plan.stored, mesh)
    shapes = {name: (held[name].dtype, stored.shape) for name, stored in plan.saved.items()}
    aliases = {alias: name for name, stored in plan.saved.items() for alias in stored.aliases}
    layout = tensor_file.Layout(
        tensor_file.aligned(shapes), {"format": "pt", **({"aliases": json.dumps(aliases)} if aliases else {})}
    )

    def whole(name: str) -> Tensor:
        return gather_full(held[name], plan.stored[name], mesh)

    if mesh.rank == 0:
        with whole_file(path) as file:
            tensor_file.write(file, layout, whole)
    else:
        for name in layout.tensors:
            whole(name)
    mesh.world.barrier()
