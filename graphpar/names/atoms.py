"""Atoms and their unification.

An atom is an index set that some dimension, or a factor of one, ranges over. Two dimensions that an op matches element
by element range over the same atoms. An atom may turn out to be a product (a head dimension viewed as heads and
d_head) or a sum (a fused projection cut into unequal parts); it is then refined everywhere at once.

Sizes never unify atoms: they only say whether a refinement is possible.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TypeAlias

import sympy

from graphpar.ir.graph import Size

Product: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """What an axis of rows by expert is made of: experts, tokens and their choices; its last atom is 1/experts."""

    experts: int
    tokens: Product
    topk: Product


class Atoms:
    """A union-find of atoms with definitions: `product` (factors, major first) or `sum` (segments, in order)."""

    def __init__(self) -> None:
        self.parent: list[int] = []
        self.size: list[Size] = []
        self.constant: set[int] = set()
        self.product: dict[int, Product] = {}
        self.sum: dict[int, tuple[Product, ...]] = {}
        self.twins: dict[int, int] = {}
        self.bases: dict[int, int] = {}
        self.rows: dict[int, Rows] = {}  # by the last atom of their axis

    def new(self, size: Size, *, constant: bool = False) -> int:
        """A fresh atom."""
        atom = len(self.parent)
        self.parent.append(atom)
        self.size.append(size)
        if constant:
            self.constant.add(atom)
        return atom

    def axis(self, size: Size) -> Product:
        """A fresh axis: one atom, or none for a dimension of size one."""
        return () if size == 1 else (self.new(size),)

    def find(self, atom: int) -> int:
        """The representative of an atom."""
        root = atom
        while self.parent[root] != root:
            root = self.parent[root]
        while self.parent[atom] != root:
            self.parent[atom], atom = root, self.parent[atom]
        return root

    def resolve(self, axis: Iterable[int]) -> list[int]:
        """The axis as a product of representatives that are not products themselves."""
        found: list[int] = []
        for atom in axis:
            root = self.find(atom)
            found.extend(self.resolve(self.product[root]) if root in self.product else [root])
        return found

    def total(self, axis: Iterable[int]) -> Size:
        """The number of indices of a product."""
        size: Size = 1
        for atom in axis:
            size = size * self.size[self.find(atom)]
        return size

    def twin(self, atom: int) -> int:
        """The second use of an atom in one tensor (seq' of seq). The twin of a twin is the atom itself."""
        root = self.find(atom)
        if root in self.bases:
            return self.find(self.bases[root])
        if root not in self.twins:
            made = self.new(self.size[root])
            self.twins[root], self.bases[made] = made, root
        return self.find(self.twins[root])

    def is_twin(self, atom: int) -> bool:
        """Whether the atom is the second use of another."""
        return self.find(atom) in self.bases

    def related(self, a: int, b: int) -> bool:
        """Whether one atom is the second use of the other."""
        a, b = self.find(a), self.find(b)
        return self.find(self.twins.get(a, a)) == b != a or self.find(self.twins.get(b, b)) == a != b

    def unify(self, a: Iterable[int], b: Iterable[int]) -> tuple[list[int], list[int]]:
        """Make two axes of equal size one; returns what could not be matched on either side (usually nothing).

        Matching runs from the left and then from the right; a common divisor of two sizes becomes a shared factor.
        """
        left, right = self.resolve(a), self.resolve(b)
        left, right = self._match(left, right, first=True)
        return self._match(left, right, first=False)

    def _match(self, a: list[int], b: list[int], *, first: bool) -> tuple[list[int], list[int]]:
        at = 0 if first else -1
        while a and b:
            x, y = a[at], b[at]
            if x == y or self.related(x, y):
                del a[at], b[at]
            elif self.size[x] == self.size[y]:
                self._union(x, y)
                del a[at], b[at]
            elif not self._split(x, y, first=first):
                break
            a, b = self.resolve(a), self.resolve(b)
        return a, b

    def _split(self, x: int, y: int, *, first: bool) -> bool:
        """Give two atoms of different size a common factor at the left (or right) end."""
        common = _common(self.size[x], self.size[y])
        if common is None or x in self.sum or y in self.sum:
            return False
        for atom in (x, y):
            rest = _quotient(self.size[atom], common)
            assert rest is not None
            if rest != 1:
                self.refine(atom, (common, rest) if first else (rest, common))
        return True

    def refine(self, atom: int, sizes: Sequence[Size], constant: Sequence[bool] = ()) -> Product:
        """Define an atom as a product of fresh atoms of these sizes; its twin is refined with it."""
        root = self.find(atom)
        flags = constant or [root in self.constant] * len(sizes)
        parts = tuple(self.new(s, constant=c) for s, c in zip(sizes, flags, strict=True))
        self.product[root] = parts
        if root in self.twins:
            self.product[self.find(self.twins[root])] = tuple(self.twin(p) for p in parts)
        if root in self.bases:
            self.product[self.find(self.bases[root])] = tuple(self.twin(p) for p in parts)
        return parts

    def _union(self, x: int, y: int) -> None:
        x, y = self.find(x), self.find(y)
        if x == y:
            return
        if y in self.bases and x not in self.bases:
            x, y = y, x
        self.parent[y] = x
        if y in self.constant:
            self.constant.add(x)
        sums = self.sum.get(x), self.sum.pop(y, None)
        if sums[1] is not None:
            self.sum[x] = sums[0] or sums[1]
            if sums[0] is not None:
                self._unify_sums(*sums)  # type: ignore[arg-type]
        self._merge_twins(x, y)

    def _merge_twins(self, x: int, y: int) -> None:
        for links in (self.twins, self.bases):
            other = links.pop(y, None)
            if other is not None:
                if x in links:
                    self._union(links[x], other)
                else:
                    links[x] = other
        if x in self.twins:
            self.bases[self.find(self.twins[x])] = x
        if x in self.bases:
            self.twins[self.find(self.bases[x])] = x

    def _unify_sums(self, a: tuple[Product, ...], b: tuple[Product, ...]) -> None:
        if [self.total(p) for p in a] == [self.total(p) for p in b]:
            for p, q in zip(a, b, strict=True):
                self.unify(p, q)

    def cut(self, atom: int, bounds: Sequence[int]) -> None:
        """Make an atom a sum with a boundary at each of these offsets, keeping the boundaries it has."""
        root = self.find(atom)
        segments = self.sum.get(root) or ((self.new(self.size[root]),),)
        offset = 0
        fresh: list[Product] = []
        for segment in segments:
            size = self.total(segment)
            inner = [b for b in bounds if offset < b < offset + size]
            fresh += self._cut_segment(segment, [b - int(offset) for b in inner]) if inner else [segment]
            offset += size
        if len(fresh) > 1:
            self.sum[root] = tuple(fresh)

    def _cut_segment(self, segment: Product, bounds: Sequence[int]) -> list[Product]:
        edges = [0, *bounds, self.total(segment)]
        return [self.axis(b - a) for a, b in itertools.pairwise(edges)]

    def segments(self, atom: int) -> tuple[Product, ...]:
        """The segments of an atom that is a sum; itself otherwise."""
        return self.sum.get(self.find(atom), ((self.find(atom),),))


def _common(a: Size, b: Size) -> Size | None:
    if isinstance(a, int) and isinstance(b, int):
        common = gcd(a, b)
        return common if common > 1 else None
    if _quotient(b, a) is not None:
        return a
    return b if _quotient(a, b) is not None else None


def _quotient(a: Size, b: Size) -> Size | None:
    """a / b where it is exact for every value of the symbols; None otherwise."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if a % b == 0 else None
    ratio = sympy.cancel(sympy.sympify(a) / sympy.sympify(b))
    numerator, denominator = ratio.as_numer_denom()
    if denominator != 1:
        return None
    return int(numerator) if numerator.is_Integer else numerator
