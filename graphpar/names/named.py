"""A graph whose values carry named axes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphpar.errors import raise_if_any
from graphpar.ir.axes import Axis, Factor
from graphpar.ir.graph import Graph, Node, Size
from graphpar.names.declared import Declared, declare
from graphpar.names.infer import Unified, unify
from graphpar.names.labels import Labels
from graphpar.names.roles import label, where
from graphpar.names.signature import Axes
from graphpar.names.unknown import misfits


@dataclass(frozen=True)
class Use:
    """What placement needs to know of one op beyond its axes."""

    summed: frozenset[int]
    whole: frozenset[int]


@dataclass(frozen=True)
class Named:
    """The graph with axes on every node.

    `factors` by id; `dims` maps every name of the model to the ids it stands for: one per atom that carries it, or, for
    a product name such as heads = kv_heads q_group, a tuple of them, major first. `uses` says per node what it sums
    and what it needs whole.
    """

    graph: Graph
    factors: Mapping[int, Factor]
    dims: Mapping[str, tuple[tuple[int, ...], ...]]
    uses: Mapping[Node, Use]
    unknown: tuple[Node, ...]
    why: Mapping[str, str]

    def sizes(self) -> dict[str, int | None]:
        """Every name with its size; None for batch and seq, which stay free."""
        found: dict[str, int | None] = {}
        for name, groups in self.dims.items():
            size: Size = 1
            for factor in groups[0]:
                size = size * self.factors[factor].size
            found[name] = size if isinstance(size, int) else None
        return found


def name(graph: Graph, declared: Declared | None = None) -> Named:
    """Infer and attach the names of every axis; what is declared comes first.

    Raises GraphparError where a declaration contradicts the graph.
    """
    declared = declared or Declared()
    raise_if_any(misfits(graph, declared.ops, declared.places))
    unified = unify(graph, declared.ops)
    labels = Labels()
    raise_if_any(declare(unified, labels, declared))
    label(unified, labels)
    return _Namer(unified, labels).run()


class _Namer:
    def __init__(self, unified: Unified, labels: Labels) -> None:
        self.unified = unified
        self.atoms = unified.atoms
        self.labels = labels
        self.factors: dict[int, Factor] = {}

    def run(self) -> Named:
        new: dict[Node, Node] = {}
        uses: dict[Node, Use] = {}
        unknown: list[Node] = []
        for node in self.unified.graph.nodes:
            signature = self.unified.signatures[node]
            made = replace(
                node,
                args=tuple(new[a] if isinstance(a, Node) else a for a in node.args),
                axes=self.axes(signature.result),
                operand_axes=tuple(None if o is None else self.axes(o) for o in signature.operands),
            )
            new[node] = made
            uses[made] = Use(self.leaves(signature.summed), self.leaves(signature.whole))
            if node in self.unified.unknown:
                unknown.append(made)
        graph = self.unified.graph
        graph = replace(graph, nodes=tuple(new.values()), outputs=tuple(new[o] for o in graph.outputs))
        return Named(graph, self.factors, self.dims(), uses, tuple(unknown), where(self.labels))

    def axes(self, axes: Axes) -> tuple[Axis, ...]:
        return tuple(self.axis(a) for a in axes)

    def axis(self, product: tuple[int, ...]) -> Axis:
        flat = self.atoms.resolve(product)
        if len(flat) == 1 and flat[0] in self.atoms.sum and flat[0] not in self.labels.names:
            segments = self.atoms.sum[flat[0]]
            return Axis(tuple(tuple(self.factor(a) for a in self.atoms.resolve(s)) for s in segments))
        self.join_packs(flat)
        return Axis((tuple(self.factor(a) for a in flat),))

    def join_packs(self, flat: list[int]) -> None:
        """The constant in front of the second part of a name is its first part: cut here by another op."""
        for before, after in itertools.pairwise(flat):
            part = self.labels.parts.get(after)
            if part is not None and part[1] == 1 and before in self.atoms.constant:
                self.labels.parts.setdefault(before, (part[0], 0, part[2]))

    def factor(self, atom: int) -> Factor:
        if atom not in self.factors:
            base = self.atoms.twin(atom) if self.atoms.is_twin(atom) else None
            plain = base if base is not None else atom
            label = self.labels.names.get(plain)
            constant = atom in self.atoms.constant and label is None
            self.factors[atom] = Factor(
                atom,
                (label or f"?{plain}") + ("'" if base is not None else ""),
                self.atoms.size[atom],
                constant,
                base,
                self.labels.parts.get(atom),
            )
        return self.factors[atom]

    def leaves(self, ids: frozenset[int]) -> frozenset[int]:
        return frozenset(a for i in ids for a in self.atoms.resolve([i]))

    def dims(self) -> dict[str, tuple[tuple[int, ...], ...]]:
        found: dict[str, list[tuple[int, ...]]] = {}
        for atom in self.factors:
            if atom in self.labels.names:
                found.setdefault(self.labels.names[atom], []).append((atom,))
        result = {n: tuple(groups) for n, groups in found.items()}
        for product, atoms in self.labels.products.items():
            same = list(zip(*(result.get(self.labels.names[x], ()) for x in atoms), strict=False))
            result.setdefault(product, tuple(tuple(x for (x,) in parts) for parts in same))
        for alias, target in self.labels.aliases.items():
            if target in result and alias not in result:
                result[alias] = result[target]
        return result
