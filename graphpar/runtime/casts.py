"""Casts that keep a float64 program float64."""

import torch
from torch import Tensor


def upcast(x: Tensor) -> Tensor:
    """X in float32, or wider if it is: a source's `x.float()`, which must not round what is checked in float64."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()
