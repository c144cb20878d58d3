"""The model run at sizes of our choice, without values, to see where it fails."""

from __future__ import annotations

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from graphpar.capture.capture import Signature
from graphpar.sources.given import Given

SIZES = (2, 16)


def failure_at(model: nn.Module, signature: Signature, sizes: tuple[int, int] = SIZES) -> Exception | None:
    """What `forward` raises for (batch, seq); None if it raises nothing, or cannot be tried.

    An exception of a torch function has notes: what the function was given.
    """
    mode = next((p.fake_mode for p in model.parameters() if isinstance(p, FakeTensor)), None)
    if mode is None:
        return None
    try:
        with mode, Given():
            shapes = signature.sized(*sizes)
            model(**{name: torch.zeros(shape, dtype=torch.int64) for name, shape in shapes.items()})
    except Exception as error:  # noqa: BLE001 - it is looked at, not handled
        return error
    return None
