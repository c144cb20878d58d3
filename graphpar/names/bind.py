"""Bind the letters of an op's rule to atoms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from graphpar.ir.graph import Node
from graphpar.names.atoms import Atoms, Product
from graphpar.names.signature import Axes, Signature
from graphpar.ops.rules import rule_of

Key: TypeAlias = "str | int"  # a letter, or a leading axis counted from the right


def bind(node: Node, operands: Sequence[Axes | None], atoms: Atoms, more: Mapping[str, str]) -> Signature | None:
    """Unify the operands' axes as the op's rule says; None if the op has no rule of letters."""
    text = rule_of(node, more)
    if text is None:
        return None
    left, _, right = text.partition("->")
    results = [t.split() for t in right.split(",")]  # one for each tensor that the op makes, or one for all
    result = results[node.attrs.get("part", 0) if len(results) > 1 else 0]
    return bind_text([t.split() for t in left.split(",")], result, operands, node, atoms)


def bind_text(
    left: Sequence[list[str]], right: list[str], operands: Sequence[Axes | None], node: Node, atoms: Atoms
) -> Signature:
    """The same for a rule that is already split into terms."""
    binder = _Binder(atoms)
    keys = [binder.operand(term, axes) for term, axes in zip(left, operands, strict=True)]
    result = binder.result(right, node)
    views = tuple(None if k is None else tuple(binder.axis(key) for key in k) for k in keys)
    views = tuple(_sized(v, o, atoms) for v, o in zip(views, operands, strict=True))
    summed, whole = binder.outcome(right)
    return Signature(views, result, frozenset(summed), frozenset(whole))


def _sized(view: Axes | None, own: Axes | None, atoms: Atoms) -> Axes | None:
    """A view never shows more than the operand has: axes of size one stay so."""
    if view is None or own is None:
        return None
    return tuple(v if o else () for v, o in zip(view, own, strict=True))


class _Binder:
    def __init__(self, atoms: Atoms) -> None:
        self.atoms = atoms
        self.letters: dict[Key, Product] = {}
        self.dots = 0
        self.whole: set[str] = set()
        self.leftover: set[int] = set()

    def operand(self, term: list[str], axes: Axes | None) -> tuple[Key, ...] | None:
        if axes is None or term == ["?"]:
            return None
        self.whole |= {t[:-1] for t in term if t.endswith("!")}
        keys: list[Key] = []
        for name in (t.rstrip("!") for t in term):
            if name == "...":
                count = len(axes) - (len(term) - 1)
                self.dots = max(self.dots, count)
                keys.extend(range(count, 0, -1))
            else:
                keys.append(name)
        for key, axis in zip(keys, axes, strict=True):
            self.place(key, axis)
        return tuple(keys)

    def place(self, key: Key, axis: Product) -> None:
        bound = self.letters.get(key, ())
        if bound and axis:
            rest = self.atoms.unify(bound, axis)
            self.leftover |= {x for side in rest for x in side}
        elif key != "1":
            self.letters[key] = bound or axis

    def axis(self, key: Key) -> Product:
        return self.letters.get(key, ())

    def result(self, right: list[str], node: Node) -> Axes:
        keys: list[Key] = []
        for name in right:
            keys.extend(range(self.dots, 0, -1)) if name == "..." else keys.append(name)
        seen: set[int] = set()
        axes: list[Product] = []
        for i, key in enumerate(keys):
            if key in ("_", "+"):
                self.letters[key] = (self.atoms.new(node.shape[i], constant=key == "_"),)
            flat = self.second_use(self.atoms.resolve(self.axis(key)), seen)
            seen.update(flat)
            if key != "1":
                self.letters[key] = flat
            axes.append(flat)
        return tuple(axes)

    def second_use(self, flat: list[int], seen: set[int]) -> Product:
        """Where a tensor would range over one atom twice, the later axis is the atom's second use."""
        return tuple(self.atoms.twin(a) if a in seen else a for a in flat)

    def outcome(self, right: list[str]) -> tuple[set[int], set[int]]:
        whole = {a for name in self.whole for a in self.atoms.resolve(self.axis(name))} | self.leftover
        gone = [k for k in self.letters if ("..." if isinstance(k, int) else k) not in right]
        summed = {a for name in gone for a in self.atoms.resolve(self.axis(name))} - whole
        return summed, whole
