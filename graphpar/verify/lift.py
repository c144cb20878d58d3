"""A model in float64 although it casts to float32 inside, as many do for norms, softmax and logits, and to count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from graphpar.runtime.grouped import by_group, products


class LiftedCounts(TorchDispatchMode):
    """Inside this context numbers that become floats become float64. Floats are cast to what is asked for."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if _casts(func, kwargs) and not args[0].is_floating_point():
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


class LiftedCasts(TorchDispatchMode):
    """Inside this context a cast of a float64 tensor to a narrower float leaves it as it is, and counts are float64.

    What is compared in float64 must not be rounded on the way. Backward belongs inside as well.
    """

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = dict(kwargs or {})
        if _casts(func, kwargs) and (args[0].dtype == torch.float64 or not args[0].is_floating_point()):
            kwargs["dtype"] = torch.float64
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:  # torch has no such kernel
            x, y, offsets = args[:3]
            return by_group(x, y, offsets) if y.dim() == 3 else products(x.mT, y, offsets)
        return func(*args, **kwargs)


def _casts(func: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an op casts to a float."""
    wanted = kwargs.get("dtype")
    return func is torch.ops.aten._to_copy.default and isinstance(wanted, torch.dtype) and wanted.is_floating_point


def lifted(text: str, model: nn.Module) -> AbstractContextManager[object]:
    """Where a program runs: with counts in float64, if it is in float64 and its text casts.

    A program that casts what is float64 already is wrong: what a source casts up is an `upcast` there.
    """
    wide = {p.dtype for p in model.parameters()} == {torch.float64}
    return LiftedCounts() if wide and (".float()" in text or ".to(torch." in text) else nullcontext()
