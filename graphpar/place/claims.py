"""Which factor claims each mesh axis in one op, and by which rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from graphpar.ir.graph import Node
from graphpar.ir.states import Shard
from graphpar.language.schema import LayoutRule
from graphpar.names.named import Use
from graphpar.place.cuttable import cuttable, even
from graphpar.place.experts import ENDS, whole
from graphpar.place.layout import Layout, fits

Claims: TypeAlias = "Mapping[str, tuple[int, LayoutRule]]"


@dataclass
class Claimer:
    """The claims of each op, in the order of the graph.

    `new` are the placed values, `claims` what was claimed for them, `kinds` what kind of value each node is.
    """

    layout: Layout
    new: Mapping[Node, Node]
    claims: Mapping[Node, Claims]
    kinds: dict[Node, str] = field(default_factory=dict[Node, str])
    _whole: dict[Node, frozenset[str]] = field(default_factory=dict[Node, "frozenset[str]"])

    def kind(self, node: Node) -> str:
        """`data`: differentiable; `ids`: fed, without gradient; `free`: depends on nothing that is fed or trained."""
        if node.op == "parameter":
            return "data" if self.layout.named.graph.tensors[self._first(node)].trainable else "ids"
        if node.op == "input":
            return "ids"
        kinds = {self.kinds[a] for a in node.operands}
        if not kinds or kinds == {"free"}:
            return "free"
        if node.op == "detach" or not node.dtype.startswith(("float", "bfloat")):
            return "ids"
        return "data" if "data" in kinds else "ids"

    def _first(self, node: Node) -> str:
        return self.layout.named.graph.members(node.attrs["name"])[0]

    def of(self, node: Node, use: Use) -> dict[str, tuple[int, LayoutRule]]:
        """What claims each mesh axis in an op."""
        found = self._plain(node, use)
        route = self.layout.experts.routing.get(node)
        if route is None:
            return found
        if node.op in ENDS:
            return {a: claim for a, claim in found.items() if a not in self.whole(route)}
        rows = {f.id for f in route.named[0].factors[1:]}
        return {a: claim for a, claim in found.items() if a not in self.whole(route) or claim[0] not in rows}

    def whole(self, route: Node) -> frozenset[str]:
        """The mesh axes on which each rank is given all rows of its tokens (see `place.experts`)."""
        if route not in self._whole:
            uses, moe = self.layout.named.uses, self.layout.spec.moe
            of_tokens = next(n for n, r in self.layout.experts.routing.items() if r is route and n.op == "dispatch")
            linears = [n for n in self.layout.experts.by[route] if n.op == "expert_linear"]
            tokens, *by_expert = ({a: f for a, (f, _) in self._data(n, uses[n]).items()} for n in (of_tokens, *linears))
            exchange = moe is None or moe.dispatch == "alltoall"
            self._whole[route] = frozenset(whole(tokens, by_expert, route.named[0], exchange=exchange))
        return self._whole[route]

    def of_experts(self, route: Node, axis: str) -> tuple[int, LayoutRule] | None:
        """What claims a mesh axis in the products by expert of a route."""
        linears = (n for n in self.layout.experts.by[route] if n.op == "expert_linear")
        found = (self._data(n, self.layout.named.uses[n]).get(axis) for n in linears)
        return next((claim for claim in found if claim is not None), None)

    def _plain(self, node: Node, use: Use) -> dict[str, tuple[int, LayoutRule]]:
        kind = self.kinds[node]
        if kind == "free":
            return {}
        if node.op == "input":
            return self._input(node)
        if kind == "ids" and node.op not in ("parameter", "cross_entropy"):
            return self._followed(node, cuttable(node, use), use)
        return self._data(node, use)

    def _data(self, node: Node, use: Use) -> dict[str, tuple[int, LayoutRule]]:
        factors = cuttable(node, use)
        if node.op == "parameter":
            names = self.layout.named.factors
            factors = {f: axes for f, axes in factors.items() if names[f].name not in ("batch", "seq")}
        found: dict[str, tuple[int, LayoutRule]] = {}
        taken: dict[int, int] = {}
        unpadded = even(node, use)
        for axis in self._mesh_order(node):
            claim = self.layout.claim(node, axis, factors, taken, unpadded)
            if claim is not None:
                found[axis] = claim
                taken[claim[0]] = taken.get(claim[0], 1) * self.layout.mesh[axis]
        return found

    def _mesh_order(self, node: Node) -> list[str]:
        """Mesh axes in the order in which the rules name them, so that outer cuts of a factor come first."""
        ordered = dict.fromkeys(a for rule in self.layout.rules(node) for a in rule.axes)
        return [a for a in ordered if self.layout.mesh[a] > 1]

    def _input(self, node: Node) -> dict[str, tuple[int, LayoutRule]]:
        factors = cuttable(node, Use(frozenset(), frozenset()))
        found: dict[str, tuple[int, LayoutRule]] = {}
        for axis in self.layout.spec.data_axes:
            if self.layout.mesh[axis] > 1 and (claim := self.layout.claim(node, axis, factors, {})):
                found[axis] = claim
        return found

    def _followed(self, node: Node, factors: Mapping[int, object], use: Use) -> dict[str, tuple[int, LayoutRule]]:
        """Ids stay as they come: a cut that the op can keep is kept."""
        found: dict[str, tuple[int, LayoutRule]] = {}
        unpadded = even(node, use)
        for operand in node.operands:
            states = self.new[operand].state or {}
            parts = Counter[int]()
            for axis, state in states.items():
                if isinstance(state, Shard):
                    parts[state.factor] = max(parts[state.factor], 1) * self.layout.mesh[axis]
            padded = {f for f, n in parts.items() if f in unpadded and not fits(self.layout.named.factors[f], n)}
            for axis, state in states.items():
                if isinstance(state, Shard) and state.factor in factors and state.factor not in padded:
                    claim = self.claims[self.new[operand]].get(axis)
                    if claim is not None:
                        found.setdefault(axis, claim)
        return found
