"""A trace leaves the model as it was: a model may set attributes and register hooks when it first runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """On the way out, every module has the attributes, hooks, tensors and submodules that it came with."""
    before = [(module.__dict__, {k: _held(v) for k, v in module.__dict__.items()}) for module in model.modules()]
    try:
        yield
    finally:
        for attributes, held in before:
            for name in attributes.keys() - held.keys():
                del attributes[name]
            for name, (value, inside) in held.items():
                attributes[name] = value
                if inside is not None:
                    value.clear()
                    value.update(inside)


def _held(value: Any) -> tuple[Any, dict[Any, Any] | None]:
    """A value, and what it holds if it is a dict: hooks, tensors and submodules are kept in dicts."""
    return value, dict(value) if isinstance(value, dict) else None
