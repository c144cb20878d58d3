"""The rules that hold for one op, and which of them claims a mesh axis."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from graphpar.errors import Diagnostic
from graphpar.ir.axes import Axis, Factor
from graphpar.ir.graph import Graph, Node
from graphpar.language.divide import needs_two_axes, not_divisible
from graphpar.language.schema import LayoutRule, Region, Spec
from graphpar.language.selectors import Aliases, Lists, matches
from graphpar.names.named import Named
from graphpar.place.experts import Experts, experts


@dataclass
class Layout:
    """A spec against one named graph and a mesh of known sizes.

    `sent` are the values that stages of a pipeline send to each other: no sum is pending in one.
    `used` collects the rules that claimed something; `problems` the dimensions that cannot be cut as asked; `yields`
    the rules that came second somewhere, with the rule that came first.
    """

    spec: Spec
    named: Named
    mesh: Mapping[str, int]
    sent: frozenset[Node] = frozenset()
    used: set[LayoutRule] = field(default_factory=set[LayoutRule])
    problems: dict[tuple[str, str], Diagnostic] = field(default_factory=dict[tuple[str, str], Diagnostic])
    yields: dict[LayoutRule, LayoutRule] = field(default_factory=dict[LayoutRule, LayoutRule])

    @cached_property
    def experts(self) -> Experts:
        """What runs by expert."""
        return experts(self.named.graph)

    @cached_property
    def selectable(self) -> tuple[Lists, Aliases]:
        """The lists of modules that a selector can pick from, and their other names."""
        return self.named.graph.lists(), self.named.graph.aliases()

    def regions(self, node: Node) -> tuple[Region, ...]:
        """The regions that an op lies in, the innermost first."""
        lists, aliases = self.selectable
        path = node.attrs["name"].rpartition(".")[0] if node.op in ("parameter", "buffer") else node.origin.module
        path = f"input:{node.attrs['name']}" if node.op == "input" else path
        path = self.named.graph.members(path)[0] if path else ""
        line = (node.origin.file, node.origin.line)
        found = [
            region
            for region in self.spec.regions
            if any(matches(s, path, op=node.op, line=line, lists=lists, aliases=aliases) for s in region.at)
        ]
        return tuple(reversed(found))

    def rules(self, node: Node) -> tuple[LayoutRule, ...]:
        """The rules that hold for an op: those of its regions, then the global ones."""
        moe = self.spec.moe
        found: list[LayoutRule] = [moe.rule] if moe and node in self.experts.inside else []
        for region in self.regions(node):
            found.extend(region.layout)
            if region.only:
                return tuple(found)
        return (*found, *self.spec.layout)

    def claim(
        self,
        node: Node,
        axis: str,
        factors: Mapping[int, Sequence[Axis]],
        taken: Mapping[int, int],
        even: Collection[int] = (),
    ) -> tuple[int, LayoutRule] | None:
        """The factor that claims a mesh axis in this op, and by which rule.

        `factors` are the ones that may be cut, with the tensor axes in which they occur; `taken` says into how many
        parts each is cut already by outer mesh axes. Those in `even` may not be padded.
        """
        ended: set[str] = set()
        for rule in self.rules(node):
            if not rule.axes:
                ended.add(rule.name)
            if axis not in rule.axes or rule.name in ended:
                continue
            chosen = self._factor(rule, axis, factors, taken, even)
            if chosen is not None:
                self.used.add(rule)
                return chosen, rule
        return None

    def _factor(
        self,
        rule: LayoutRule,
        axis: str,
        factors: Mapping[int, Sequence[Axis]],
        taken: Mapping[int, int],
        even: Collection[int],
    ) -> int | None:
        groups = self.named.dims.get(rule.name, ())
        present = [g[0] for g in groups if g[0] in factors]
        if not present:
            return None
        factor = self.named.factors[present[0]]
        if any(not _everywhere(factor, a) for a in factors[factor.id]):
            return None
        if not self._divides(rule, axis, factor, groups[0], taken.get(factor.id, 1)):
            return None
        parts = taken.get(factor.id, 1) * self.mesh[axis]
        return None if factor.id in even and not fits(factor, parts) else factor.id

    def _divides(self, rule: LayoutRule, axis: str, factor: Factor, group: tuple[int, ...], taken: int) -> bool:
        parts = taken * self.mesh[axis]
        if not isinstance(factor.size, int) or fits(factor, parts):
            return True
        if self.spec.uneven.of(factor.name) == "pad" and factor.name == "vocab":
            return True
        if len(group) == 2:
            inner = self.named.factors[group[1]].size
            problem = needs_two_axes(rule, factor.size, int(inner), parts)
        else:
            where = self.named.why.get(factor.name, "")
            problem = not_divisible(
                rule,
                factor.size,
                parts,
                pad=factor.name == "vocab",
                why=(f"{factor.name} comes from {where}",) if where else (),
            )
        self.problems.setdefault((rule.name, axis), problem)
        return False

    def order(self, factor: int) -> tuple[str, ...]:
        """The mesh axes that may cut a factor, outermost first: the order in which the rules for it name them."""
        names = {n for n, groups in self.named.dims.items() if any(g[0] == factor for g in groups)}
        return tuple(dict.fromkeys(a for rule in self.spec.rules if rule.name in names for a in rule.axes))


def fits(factor: Factor, parts: int) -> bool:
    """Whether a factor can be cut into so many parts without padding."""
    return not isinstance(factor.size, int) or factor.size % parts == 0


def _everywhere(factor: Factor, axis: Axis) -> bool:
    """Whether every segment of the axis has the factor: a fused axis is cut in all its parts or not at all."""
    return all(factor in segment for segment in axis.segments)


def cut_loops(graph: Graph, spec: Spec) -> Graph:
    """Give iterations that lie in different regions bodies of their own."""
    from graphpar.place.bodies import split_bodies

    return split_bodies(graph, spec) if spec.regions else graph
