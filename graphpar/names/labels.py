"""Names that atoms have been given, and how roles give them."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpar.ir.graph import Node
from graphpar.names.infer import Unified


@dataclass
class Labels:
    """Name and role of each named atom; `products` names an atom that is a product (heads = kv_heads q_group)."""

    names: dict[int, str] = field(default_factory=dict[int, str])
    why: dict[int, str] = field(default_factory=dict[int, str])
    products: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    parts: dict[int, tuple[str, int, int]] = field(default_factory=dict[int, tuple[str, int, int]])

    def give(self, atom: int, name: str, why: str) -> None:
        """Name an atom that has no name yet."""
        if atom not in self.names:
            self.names[atom], self.why[atom] = name, why


def nodes(u: Unified, op: str) -> list[Node]:
    """Every node of an op."""
    return [n for n in u.graph.nodes if n.op == op]


def single(u: Unified, labels: Labels, axis: tuple[int, ...], name: str, node: Node) -> None:
    """Name an axis of one atom, or the parts of a head."""
    if len(axis) == 1 and axis[0] not in u.atoms.constant:
        labels.give(axis[0], name, because(node))
    elif len(axis) > 1 and name.startswith("d_head"):
        for k, atom in enumerate(axis):
            labels.parts.setdefault(atom, (name, k, len(axis)))


def because(node: Node) -> str:
    """What gave a name."""
    return f"{node.op} at {node.origin}"
