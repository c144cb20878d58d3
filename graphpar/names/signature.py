"""How one op uses axes: what placement needs to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Axes: TypeAlias = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """The axes (products of atom ids) under which an op sees each operand, and of its result.

    `summed` atoms are contracted or reduced by addition; `whole` ones must not be sharded in this op.
    """

    operands: tuple[Axes | None, ...]
    result: Axes
    summed: frozenset[int] = frozenset()
    whole: frozenset[int] = frozenset()
