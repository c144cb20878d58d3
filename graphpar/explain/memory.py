"""What one rank stores of the model, from a plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpar.explain.places import places

_BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "bfloat16": 2, "float16": 2, "int16": 2}


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank. Moments are AdamW's two, in the dtype of their parameter; activations come on top."""

    parameters: int
    gradients: int
    moments: int
    buffers: int
    whole: int  # parameters of the unsplit model

    @property
    def total(self) -> int:
        """Everything but activations."""
        return self.parameters + self.gradients + self.moments + self.buffers


@dataclass(frozen=True)
class Sharded:
    """How much of the model is cut: parameters, and the bytes of those in the unsplit model."""

    parameters: int
    of: int
    bytes: int
    of_bytes: int

    def __str__(self) -> str:
        share = 100 * self.bytes / self.of_bytes if self.of_bytes else 0
        text = f"{min(share, 99.9):.1f}" if 99.5 <= share < 100 else f"{share:.0f}"  # what is not all is not 100 %
        return f"{self.parameters} of {self.of} parameters, {text} % of their bytes"


def memory(plan: Mapping[str, Any]) -> Memory:
    """What a rank holds, in a pipeline the one that holds the most; else all hold the same amount."""
    return max(by_place(plan), key=lambda held: held.total)


def by_place(plan: Mapping[str, Any]) -> list[Memory]:
    """What a rank holds at each place of a pipeline; without one, at the only place there is."""
    whole = _bytes(plan["parameters"].values(), "shape")
    return [_stored(place, whole, "local_shape") for place in places(plan)]


def unsplit(plan: Mapping[str, Any]) -> Memory:
    """What one device would hold."""
    return _stored(plan, _bytes(plan["parameters"].values(), "shape"), "shape")


def _stored(plan: Mapping[str, Any], whole: int, shape: str) -> Memory:
    parameters = list(plan["parameters"].values())
    gradients = _bytes([p for p in parameters if p["trainable"]], shape)
    return Memory(
        parameters=_bytes(parameters, shape),
        gradients=gradients,
        moments=2 * gradients,
        buffers=_bytes(plan["buffers"].values(), shape),
        whole=whole,
    )


def sharded(plan: Mapping[str, Any]) -> Sharded:
    """Which part of the model some mesh axis cuts."""
    parameters = list(plan["parameters"].values())
    cut = [p for p in parameters if p["sharded"]]
    return Sharded(len(cut), len(parameters), _bytes(cut, "shape"), _bytes(parameters, "shape"))


def width(dtype: str) -> int:
    """Bytes per element."""
    return _BYTES.get(dtype, 1)


def _bytes(tensors: Iterable[Mapping[str, Any]], shape: str) -> int:
    return sum(prod(t[shape]) * width(t["dtype"]) for t in tensors)


def spell(size: float) -> str:
    """A number of bytes as people say it."""
    for unit in ("B", "KiB", "MiB"):
        if size < 999.5:  # what rounds to four digits is said in the next unit
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} GiB" if size < 999.5 else f"{size / 1024:.3g} TiB"
