"""Named axes: sums of products of atoms.

`c_attn.weight` of a GPT-2 is `d_model (3 heads d_head)`: two axes, the second one a product of three factors. A fused
projection with unequal parts is a sum: `(heads d_head + kv_heads d_head + kv_heads d_head)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy

Size: TypeAlias = "int | sympy.Expr"


@dataclass(frozen=True, slots=True)
class Factor:
    """A named index set. `id` is its identity; `base` names the atom of which it is the second use (seq' of seq).

    A constant factor (the 3 of a packed projection) is printed as its size and never sharded. `part` says that the
    factor is the k-th of n that together have one name: a head dimension that rotary positions cut in two.
    """

    id: int
    name: str
    size: Size
    constant: bool = False
    base: int | None = None
    part: tuple[str, int, int] | None = None

    def __str__(self) -> str:
        return str(self.size) if self.constant else self.name


Segment: TypeAlias = "tuple[Factor, ...]"


@dataclass(frozen=True, slots=True)
class Axis:
    """One tensor dimension: segments one after another, each a row-major product of factors."""

    segments: tuple[Segment, ...] = ((),)

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Every factor of every segment, once, in order."""
        return tuple(dict.fromkeys(f for s in self.segments for f in s))

    @property
    def product(self) -> Segment:
        """The factors of an axis that is a plain product."""
        (segment,) = self.segments
        return segment

    @property
    def plain(self) -> bool:
        """Whether the axis is one product."""
        return len(self.segments) == 1

    @property
    def ragged(self) -> bool:
        """Whether the axis has as many indices of one factor for each of another as the data says.

        So it is with rows by expert: `(experts batch seq topk 1/experts)`, whose last factor has a fraction for a size.
        """
        return any(isinstance(f.size, sympy.Rational) and not f.size.is_integer for f in self.factors)

    def __str__(self) -> str:
        return spell(self, {})


def spell(axis: Axis, marks: Mapping[int, str]) -> str:
    """The axis in the notation of the spec, each factor followed by its mark, such as `@tp`."""
    parts = [" ".join(_words(s, marks)) or "1" for s in axis.segments]
    text = " + ".join(parts)
    return f"({text})" if " " in text else text


def _words(segment: Segment, marks: Mapping[int, str]) -> list[str]:
    words: list[str] = []
    for i, factor in enumerate(segment):
        if factor.part is None:
            words.append(str(factor) + marks.get(factor.id, ""))
        elif factor.part[1] == 0 and _complete(segment[i:], factor.part):
            words.append(factor.part[0])
        elif not _inside(segment, i):
            words.append(str(factor) + marks.get(factor.id, ""))
    return words


def _complete(rest: Segment, part: tuple[str, int, int]) -> bool:
    name, _, count = part
    return len(rest) >= count and all(f.part == (name, k, count) for k, f in enumerate(rest[:count]))


def _inside(segment: Segment, at: int) -> bool:
    part = segment[at].part
    return part is not None and at >= part[1] and _complete(segment[at - part[1] :], (part[0], 0, part[2]))


def spell_all(axes: tuple[Axis, ...], marks: Mapping[int, str] | None = None) -> str:
    """All axes of a tensor, separated by spaces."""
    return " ".join(spell(a, marks or {}) for a in axes)
