"""Which dimension each mesh axis cuts where, and which rules came second there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from graphpar.ir.graph import Node
from graphpar.language.schema import LayoutRule
from graphpar.place.place import Placed


@dataclass(frozen=True)
class Yield:
    """`name` would have cut `axis` in these modules, had `to` not come first."""

    axis: str
    name: str
    to: str
    modules: tuple[str, ...]

    def __str__(self) -> str:
        where = [m or "the model itself" for m in self.modules]
        return f"{self.axis}: {self.name} yields to {self.to} in {', '.join(where)}"


def yields(placed: Placed) -> tuple[Yield, ...]:
    """Every rule that came second somewhere, in the order of the spec."""
    found: dict[tuple[str, str, str], dict[str, None]] = {}
    for node, claims in placed.claims.items():
        if node.op not in ("parameter", "buffer", "input"):
            for axis, (_, rule) in claims.items():
                for second in _second(node, axis, rule, placed):
                    found.setdefault((axis, second.name, rule.name), {})[node.origin.module] = None
    return tuple(Yield(*key, _together(modules)) for key, modules in found.items())


def _second(node: Node, axis: str, first: LayoutRule, placed: Placed) -> Iterable[LayoutRule]:
    rules = placed.layout.rules(node)
    behind = rules[rules.index(first) + 1 :] if first in rules else rules  # that of `moe` stands before all
    for rule in behind:
        if axis in rule.axes and rule.name != first.name and _has(node, rule.name, placed):
            yield rule


def _has(node: Node, name: str, placed: Placed) -> bool:
    ids = {group[0] for group in placed.layout.named.dims.get(name, ())}
    views = [v for v in (*(node.operand_axes or ()), node.axes) if v is not None]
    return any(factor.id in ids for axes in views for axis in axes for factor in axis.factors)


def _together(modules: Mapping[str, None]) -> tuple[str, ...]:
    """The modules, with those of one parent as the parent, and none below another one."""
    parents = Counter(m.rpartition(".")[0] for m in modules if "." in m)
    raised = dict.fromkeys(p if parents[p := m.rpartition(".")[0]] > 1 and p else m for m in modules)
    return tuple(p for p in raised if not any(p.startswith(f"{other}.") for other in raised))
