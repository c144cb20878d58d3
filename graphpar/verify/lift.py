"""A source model in float64 although it casts to float32 inside, as many do for norms, softmax and logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LiftedCasts(TorchDispatchMode):
    """Inside this context a cast of a float64 tensor to a narrower float leaves it as it is.

    What is compared in float64 must not be rounded on the way. Backward belongs inside as well.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        wanted = kwargs.get("dtype")
        if func is torch.ops.aten._to_copy.default and isinstance(wanted, torch.dtype):
            x: Tensor = args[0]
            if x.dtype == torch.float64 and wanted.is_floating_point:
                kwargs["dtype"] = torch.float64
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:
            return _grouped(*args, **kwargs)
        return func(*args, **kwargs)


def _grouped(a: Tensor, b: Tensor, offs: Tensor, **_: Any) -> Tensor:
    """A product by groups in float64, for which torch has no kernel.

    `offs` are the ends of groups: of rows of a, each with a matrix of b; or of what is summed, for two matrices.
    """
    ends = offs.tolist()
    groups = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    if b.dim() == 2:
        return torch.stack([a[:, group] @ b[group] for group in groups])
    done = [a[group] @ matrix for group, matrix in zip(groups, b, strict=True)]
    return torch.cat([*done, a.new_zeros((a.shape[0] - ends[-1], b.shape[2]))])
