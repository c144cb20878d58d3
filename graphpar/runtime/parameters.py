"""Parameters and buffers of a generated module, and what is known of each parameter's gradient."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Spread:
    """How a parameter lies on the mesh."""

    grad_sum: tuple[str, ...]  # after backward its gradient is a summand over these axes
    shard_axes: tuple[str, ...]  # ranks along these axes hold different parts of it


def spread(name: str, parameter: Tensor) -> Spread:
    """How a parameter lies on the mesh.

    Raises ValueError for one that does not say so: `mesh.parameter` did not make it, or it is a deep copy.
    """
    try:
        return Spread(parameter.grad_sum, parameter.shard_axes)  # pyright: ignore[reportAttributeAccessIssue]
    except AttributeError:
        raise ValueError(f"{name} was not made by mesh.parameter: how it lies on the mesh is unknown") from None


class Parameters(nn.Module):
    """Holds parameters and buffers under the names that they have in the source; it computes nothing."""

    def __init__(self, **tensors: nn.Parameter | Tensor | nn.Module | None) -> None:
        super().__init__()
        for name, value in tensors.items():
            if isinstance(value, nn.Module):
                self.add_module(name, value)
            elif isinstance(value, nn.Parameter):
                self.register_parameter(name, value)
            else:
                self.register_buffer(name, value, persistent=getattr(value, "persistent", True))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __getitem__(self, index: int) -> Any:
        """The member that the source keeps under a number, as in a list of modules."""
        return getattr(self, str(index))

    def extra_repr(self) -> str:
        """The local shapes."""
        return ", ".join(f"{name}={list(p.shape)}" for name, p in self.named_parameters(recurse=False))


def unset(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor that shows that nobody filled it: NaN, or the least integer, or False."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.full(shape, torch.nan, dtype=dtype, device=device)
    least = False if dtype == torch.bool else torch.iinfo(dtype).min
    return torch.full(shape, least, dtype=dtype, device=device)
