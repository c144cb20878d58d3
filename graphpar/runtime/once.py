"""Backward functions that must not be differentiated again."""

from collections.abc import Callable
from typing import Any, TypeVar

from torch.autograd.function import once_differentiable

Backward = TypeVar("Backward", bound=Callable[..., Any])


def once(backward: Backward) -> Backward:
    """Make a second derivative an error instead of a wrong number; costs some microseconds per call."""
    return once_differentiable(backward)  # pyright: ignore[reportReturnType]
