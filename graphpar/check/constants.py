"""Values that a program makes from sizes alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from graphpar.check.dims import Wrong, whole
from graphpar.check.rules import rule
from graphpar.check.value import Value


@dataclass(frozen=True)
class Positions(Value):
    """0, 1, .. as torch.arange(n) made them: as an index of n rows, every row by itself."""


@rule("torch.arange")
def arange(*numbers: Any, **_: Any) -> Value:
    """Numbers, the same on every rank."""
    if not all(isinstance(n, (int, float)) for n in numbers):
        raise Wrong("a range that does not follow from the text")
    start, stop, step = (0, *numbers, 1)[:3] if len(numbers) == 1 else (*numbers, 1)[:3]
    made = Positions if (start, step) == (0, 1) else Value
    return made((whole(ceil((stop - start) / step)),))


@rule("torch.linspace")
def linspace(start: float, end: float, steps: int, **_: Any) -> Value:
    """Numbers, the same on every rank."""
    del start, end
    return Value((whole(steps),))


@rule("torch.zeros", "torch.ones", "torch.full", "torch.empty", "torch.eye")
def filled(*sizes: Any, **_: Any) -> Value:
    """A constant, the same on every rank."""
    shape = sizes[0] if isinstance(sizes[0], (tuple, list)) else [n for n in sizes if isinstance(n, int)]
    return Value(tuple(whole(n) for n in shape))


@rule("torch.tensor", "torch.scalar_tensor")
def scalar(*_: Any, **__: Any) -> Value:
    """A number as a tensor."""
    return Value(())


@rule("torch.zeros_like", "torch.ones_like", "torch.full_like")
def like(x: Value, *_: Any, **__: Any) -> Value:
    """A constant as large as x."""
    return Value(x.dims)
