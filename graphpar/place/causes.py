"""Why the values of a placed graph lie as they do: for each change of state what made it so, and what needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphpar.ir.graph import Cause, Node, Origin, plain
from graphpar.ir.states import I, Partial, R, State
from graphpar.language.schema import LayoutRule
from graphpar.place.claims import Claimer, Claims
from graphpar.place.layout import Layout
from graphpar.place.reason import reason
from graphpar.place.transitions import Transition

NAMED = ("parameter", "buffer", "input")


@dataclass(frozen=True)
class Causes:
    """The causes in one graph that is being placed; `claims` and `sources` grow meanwhile.

    `sources` are the nodes that placed values come from.
    """

    layout: Layout
    claimer: Claimer
    claims: Mapping[Node, Claims]
    sources: Mapping[Node, Node]

    def own(self, node: Node, state: Mapping[str, State], claims: Claims) -> tuple[Cause, ...]:
        """What an op cuts along each mesh axis."""
        return tuple(self._cause("own", node, axis, claims, state[axis]) for axis in claims)

    def of(self, value: Node, axis: str, consumer: Node, claims: Claims) -> tuple[Cause, ...]:
        """What a change of state along an axis comes from: the op that made the value so, and the one that reads it."""
        needed = self._cause("needed", consumer, axis, claims)
        state = (value.state or {})[axis]
        if state in (I, R):
            return (needed,)
        maker = self._maker(value, axis)
        return (self._cause("made", maker, axis, self.claims.get(maker, {}), state), needed)

    def rule(self, value: Node, axis: str, claims: Claims) -> LayoutRule | None:
        """The rule that asks for a transition: the consumer's claim, or that of what made the pending sum."""
        if axis in claims:
            return claims[axis][1]
        claim = self._origin(value, axis)
        return claim[1] if claim else None

    def reason(self, step: Transition, value: Node, axis: str, target: State, consumer: Node, claims: Claims) -> str:
        """The reason of a transition in a few words."""
        factors = self.layout.named.factors
        made = self._origin(value, axis)
        return reason(
            step.op,
            axis,
            leaf=plain(consumer.origin.module.rpartition(".")[2]) or consumer.op,
            claim=factors[claims[axis][0]].name if axis in claims else None,
            summed=factors[made[0]].name if made else "its parts",
            had=getattr((value.state or {})[axis], "name", "it"),
            part=getattr(target, "name", None),
            counts=value.dtype == "routing",
        )

    def _origin(self, value: Node, axis: str) -> tuple[int, LayoutRule] | None:
        """The claim on `axis` of the op that a value's state comes from."""
        return self.claims.get(self._maker(value, axis), {}).get(axis)

    def _maker(self, value: Node, axis: str) -> Node:
        """The op that gave a value its state along `axis`."""
        while axis not in self.claims.get(value, {}) and value.operands:
            like = [a for a in value.operands if (a.state or {}).get(axis) == (value.state or {}).get(axis)]
            value = (like or value.operands)[0]
        return value

    def _cause(self, role: str, node: Node, axis: str, claims: Claims, state: State = I) -> Cause:
        claim, origin = claims.get(axis), _origin(node)
        route = self.layout.experts.routing.get(self.sources.get(node, node))
        if claim is None and route is not None:  # it gives to experts, or takes from them, what they need whole
            claim = self.claimer.of_experts(route, axis)
        if claim is None:
            return Cause(role, axis, "whole", node.op, origin)
        how = "summed" if isinstance(state, Partial) else "cut"
        return Cause(role, axis, how, node.op, origin, self.layout.named.factors[claim[0]].name, claim[1])


def _origin(node: Node) -> Origin:
    """Where an op is; of what is held or given, its name stands for the module."""
    return replace(node.origin, module=node.attrs["name"]) if node.op in NAMED else node.origin
