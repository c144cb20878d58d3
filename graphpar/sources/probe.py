"""The model run at sizes of our choice, without values, to see where it fails."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

SIZES = (2, 16)


def failure_at(model: nn.Module, inputs: Sequence[str], sizes: tuple[int, int] = SIZES) -> Exception | None:
    """What `forward` raises for inputs of (batch, seq); None if it raises nothing, or cannot be tried."""
    mode = next((p.fake_mode for p in model.parameters() if isinstance(p, FakeTensor)), None)
    if mode is None:
        return None
    try:
        with mode:
            model(**{name: torch.zeros(sizes, dtype=torch.int64) for name in inputs})
    except Exception as error:  # noqa: BLE001 - it is looked at, not handled
        return error
    return None
