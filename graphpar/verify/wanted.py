"""One collective that must run, and its size."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import sympy

from graphpar.runtime.axis import Executed
from graphpar.verify.batches import Size


@dataclass(frozen=True)
class Wanted:
    """One collective that must run, and the decision behind it."""

    kind: str
    axis: str
    bytes: int
    why: str = ""
    routed: bool = False  # how many bytes a rank hands in is up to the data; `bytes` is the mean over the ranks

    def matches(self, ran: Executed) -> bool:
        """Whether this is what ran."""
        return (self.kind, self.axis) == (ran.kind, ran.axis) and (self.routed or self.bytes == ran.bytes)

    def __str__(self) -> str:
        size = f"{'about ' if self.routed else ''}{self.bytes} bytes"
        return f"{self.kind} over {self.axis} of {size}" + (f" ({self.why})" if self.why else "")


@lru_cache(maxsize=10_000)
def evaluate(text: str, size: Size) -> int:
    """An expression in batch and seq."""
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "seq")}
    value: sympy.Expr = sympy.parse_expr(text, local_dict=symbols).subs(
        {symbols["batch"]: size.rows, symbols["seq"]: size.length}
    )
    return int(value)
