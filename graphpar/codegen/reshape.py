"""A change of shape, as a person writes it: flatten, unflatten, or the sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphpar.codegen.local import Cuts
from graphpar.ir.axes import Axis, Factor
from graphpar.ir.graph import Node, Size


@dataclass(frozen=True)
class Group:
    """Dimensions of the operand that become dimensions of the result: [start, stop) on both sides."""

    old: tuple[int, int]
    new: tuple[int, int]

    @property
    def changes(self) -> bool:
        """Whether the group is more than one dimension kept."""
        return self.old[1] - self.old[0] != 1 or self.new[1] - self.new[0] != 1


def reshape(node: Node, x: Node, before: Cuts, after: Cuts, say: Callable[[Size], str]) -> str:
    """The method call that turns `x` into the shape of `node`; sizes are local and recomputed, never copied."""
    old, new = x.named, node.named
    changed = [g for g in groups(old, new) if g.changes]
    if len(changed) == 1:
        text = _one(changed[0], x, old, new, after, say)
        if text is not None:
            return text
    return f".reshape({', '.join(_sizes(new, after, say))})"


def groups(old: Sequence[Axis], new: Sequence[Axis]) -> list[Group]:
    """The smallest groups of neighbouring dimensions with the same factors on both sides."""
    found: list[Group] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = i, j
        left: list[Factor] = []
        right: list[Factor] = []
        if i < len(old) and j < len(new) and old[i] == new[j]:
            i, j = i + 1, j + 1
        else:
            while True:
                if i < len(old) and (len(left) <= len(right) or j >= len(new)):
                    left += old[i].factors
                    i += 1
                elif j < len(new):
                    right += new[j].factors
                    j += 1
                else:
                    break
                if left == right and (left or (i < len(old)) == (j < len(new))) and i > a and j > b:
                    break
        found.append(Group((a, i), (b, j)))
    return found


def _one(
    group: Group, x: Node, old: Sequence[Axis], new: Sequence[Axis], after: Cuts, say: Callable[[Size], str]
) -> str | None:
    a, b = group.old
    c, d = group.new
    if b - a > 1 and d - c == 1:
        return f".flatten({a or ''})" if b == x.rank else f".flatten({a}, {b - 1})"
    if b - a == 1 and d - c > 1:
        dim = -1 if a == x.rank - 1 else a
        return f".unflatten({dim}, ({', '.join(_sizes(new[c:d], after, say, spare=True))}))"
    _ = old
    return None


def _sizes(axes: Sequence[Axis], after: Cuts, say: Callable[[Size], str], *, spare: bool = False) -> list[str]:
    """Local sizes; one of them may be left to torch, the first symbolic one or else (if `spare`) the first."""
    sizes = [after.axis(axis) for axis in axes]
    free = next((i for i, s in enumerate(sizes) if not isinstance(s, int)), 0 if spare else None)
    return ["-1" if i == free else str(s) if isinstance(s, int) else say(s) for i, s in enumerate(sizes)]
