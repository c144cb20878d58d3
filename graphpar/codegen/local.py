"""Local sizes: how large a dimension is on one rank, and how a program says so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sympy

from graphpar.ir.axes import Axis, Factor
from graphpar.ir.graph import Node, Size
from graphpar.ir.states import Shard


@dataclass(frozen=True)
class Cuts:
    """Which mesh axes cut each factor of one value, outermost first, and the mesh's sizes."""

    mesh: Mapping[str, int]
    by_factor: Mapping[int, tuple[str, ...]]

    def parts(self, factor: Factor) -> int:
        """Into how many parts a factor is cut."""
        count = 1
        for axis in self.by_factor.get(factor.id, ()):
            count *= self.mesh[axis]
        return count

    def size(self, factor: Factor) -> Size:
        """The factor's size on one rank, padded up where it does not divide."""
        parts = self.parts(factor)
        if isinstance(factor.size, int):
            return -(-factor.size // parts)
        return factor.size / parts if parts > 1 else factor.size

    def axis(self, axis: Axis) -> Size:
        """An axis' size on one rank."""
        total: Size = 0
        for segment in axis.segments:
            total = total + self.product(segment)
        return total

    def product(self, factors: Sequence[Factor]) -> Size:
        """A product's size on one rank."""
        size: Size = 1
        for factor in factors:
            size = size * self.size(factor)
        return size

    def marks(self) -> dict[int, str]:
        """How each cut factor is marked in print."""
        return {
            f: "@" + "".join(axes) if len(axes) == 1 else "@" + "+".join(axes) for f, axes in self.by_factor.items()
        }


def cuts(node: Node, mesh: Mapping[str, int], order: Callable[[int], Sequence[str]]) -> Cuts:
    """The cuts of a node's value; `order` gives the mesh axes of a factor, outermost first."""
    found: dict[int, list[str]] = {}
    for axis, state in (node.state or {}).items():
        if isinstance(state, Shard) and mesh[axis] > 1:
            found.setdefault(state.factor, []).append(axis)
    return Cuts(mesh, {f: tuple(sorted(axes, key=order(f).index)) for f, axes in found.items()})


def blocks(axis: Axis, factor: int, local: Cuts) -> Size | tuple[Size, ...]:
    """How a cut factor lies in its axis on one rank: the number of equal blocks in front of it, or, in an axis of
    several segments, the local size of each segment."""
    if axis.plain:
        before: list[Factor] = []
        for f in axis.product:
            if f.id == factor:
                break
            before.append(f)
        return local.product(before)
    return tuple(local.product(s) for s in axis.segments)


def symbols(size: Size) -> list[sympy.Symbol]:
    """The free symbols of a size, by name."""
    found = [] if isinstance(size, int) else [s for s in size.free_symbols if isinstance(s, sympy.Symbol)]
    return sorted(found, key=lambda s: s.name)
