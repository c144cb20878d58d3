"""One collective that must run, and its size."""

from __future__ import annotations

from dataclasses import dataclass

from graphpar.explain.sizes import number
from graphpar.runtime.axis import Executed
from graphpar.verify.batches import Size


@dataclass(frozen=True)
class Wanted:
    """One collective that must run, and the decision behind it."""

    kind: str
    axis: str
    bytes: int
    why: str = ""
    routed: str = (
        ""  # how many bytes a rank hands in is up to the data; `bytes` is the mean over the ranks, or the most
    )

    def matches(self, ran: Executed) -> bool:
        """Whether this is what ran."""
        return (self.kind, self.axis) == (ran.kind, ran.axis) and (bool(self.routed) or self.bytes == ran.bytes)

    def __str__(self) -> str:
        size = f"{'about ' if self.routed else ''}{self.bytes} bytes"
        return f"{self.kind} over {self.axis} of {size}" + (f" ({self.why})" if self.why else "")


def evaluate(text: str, size: Size) -> int:
    """An expression in batch and seq."""
    return number(text, size.rows, size.length)
