"""The same model by torch's own tensor parallelism: the author's module, with a plan of styles for its parts."""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

STYLES: dict[str, ParallelStyle] = {
    "tokens": RowwiseParallel(input_layouts=Replicate()),
    "blocks.*.attention.qkv": ColwiseParallel(),
    "blocks.*.attention.out": RowwiseParallel(),
    "blocks.*.mlp.up": ColwiseParallel(),
    "blocks.*.mlp.down": RowwiseParallel(),
    "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),  # for `loss_parallel`
}


def parallelize(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Split the module along the only axis of the mesh."""
    return parallelize_module(model, mesh, STYLES)


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank. All ranks must call it."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
