"""A pass is a value: a name and a table of rules, one per op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from graphpar.ir.graph import Graph, Node, rebuild

Rule = Callable[[Node], "Node | None"]


@dataclass(frozen=True)
class Pass:
    """A rewrite of the whole graph.

    `rules[op]` sees every node of that op, operands already rewritten, and returns what takes its place, or None.
    `whole`, where a pass needs it, rewrites the graph at once, before the rules.
    """

    rules: Mapping[str, Rule] = field(default_factory=dict[str, Rule])
    whole: Callable[[Graph], Graph] | None = None

    def __call__(self, graph: Graph) -> Graph:
        """The rewritten graph."""
        graph = self.whole(graph) if self.whole else graph
        if not self.rules:
            return graph
        return rebuild(graph, lambda node: rule(node) if (rule := self.rules.get(node.op)) else None)
