"""The weights for the source model: one .safetensors file with its names and full shapes."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from graphpar.runtime import tensor_file
from graphpar.runtime.files import whole_file
from graphpar.runtime.initialise import held_tensors, unread_values
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan
from graphpar.runtime.tape import Tape
from graphpar.runtime.whole import gather_full, held_dtypes, require_equal_replicas


def save_weights(path: Path, model: nn.Module, plan: Plan, tape: Tape, mesh: Mesh) -> None:
    """Write every name of the source's state_dict, whole and without padding. All ranks must call it.

    One tensor at a time is gathered; rank 0 writes. A tied tensor stands under each of its names: the source's
    `load_state_dict(..., strict=True)` asks for all. Raises ReplicaError when ranks have drifted apart.
    """
    held, unread = held_tensors(model, plan), unread_values(plan, tape, mesh)
    require_equal_replicas(held, plan.stored, mesh)
    dtypes = {**held_dtypes(held, plan.stored, mesh), **{name: tensor.dtype for name, tensor in unread.items()}}
    source = {name: stored for stored in (*plan.saved.values(), *plan.unread.values()) for name in stored.names}
    shapes = {name: (dtypes[stored.name], stored.shape) for name, stored in source.items()}
    layout = tensor_file.Layout(tensor_file.aligned(shapes), {"format": "pt"})

    def whole(name: str) -> Tensor:
        stored = source[name]
        if stored.name in unread:
            return unread[stored.name]
        return gather_full(held.get(stored.name), stored, mesh, dtypes[stored.name])

    if mesh.rank == 0:
        with whole_file(path) as file:
            tensor_file.write(file, layout, whole)
    else:
        for name in layout.tensors:
            whole(name)
    mesh.world.barrier()
