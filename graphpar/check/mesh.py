"""What a program holds besides tensors and modules: the mesh, and things that no rule looks into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from graphpar.check.dims import Wrong
from graphpar.check.program import Declared
from graphpar.check.rules import Axis, Trace


class Unknown:
    """The result of a statement in which something was found: what is made of it is not judged."""


UNKNOWN = Unknown()


@dataclass(frozen=True)
class Opaque:
    """Something that no rule looks at: a dtype, a device, whether the model trains."""


@dataclass(frozen=True)
class Mesh:
    """The mesh, as the constructors of modules see it. Axes of size 1 are in `sizes`, and drop out of all else."""

    sizes: Mapping[str, int]
    trace: Trace

    def live(self, names: str | tuple[str, ...]) -> tuple[str, ...]:
        """Axes of more than one rank. Raises Wrong for an axis that the mesh does not have."""
        found = names.split() if isinstance(names, str) else names
        if unknown := [n for n in found if n not in self.sizes]:
            raise Wrong(f"the mesh has no axis {unknown[0]}")
        return tuple(n for n in found if self.sizes[n] > 1)

    def axis(self, names: str | tuple[str, ...]) -> Axis:
        """An axis or a product of axes."""
        live = self.live(names)
        return Axis(live, prod(self.sizes[name] for name in live), self.trace)

    def parameter(
        self,
        line: int,
        *shape: int,
        sharded: str = "",
        grad_sum: str = "",
        trainable: bool = True,
        dtype: object = None,
    ) -> Declared:
        """What `mesh.parameter` declares."""
        del dtype
        return Declared(shape, frozenset(self.live(sharded)), frozenset(self.live(grad_sum)), trainable, line)

    def buffer(self, line: int, *shape: int, dtype: object = None, persistent: bool = True) -> Declared:
        """What `mesh.buffer` declares; its cuts are those of the plan."""
        del dtype, persistent
        return Declared(shape, frozenset(), frozenset(), False, line)
