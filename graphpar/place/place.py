"""Give every value a state per mesh axis, and insert a transition wherever producer and consumer differ.

Per op and mesh axis, the first rule of the layout that names one of the op's factors claims the axis. The claim fixes
what the op needs of every operand: a shard where the operand has the factor, the whole value where it does not. The
result is a shard if it keeps the factor and a pending sum if the factor is summed away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

from graphpar.ir.calls import entered, repeated
from graphpar.ir.graph import Graph, Node
from graphpar.ir.states import I, P, R, Shard, State
from graphpar.names.named import Use
from graphpar.ops.rules import linear_in
from graphpar.ops.shapes import LEAVES
from graphpar.place import forms
from graphpar.place.bodies import body_of
from graphpar.place.causes import Causes
from graphpar.place.claims import Claimer, Claims
from graphpar.place.cuttable import CLASSES, is_class, splits
from graphpar.place.experts import ROUTING_MOVES, ROW_MOVES, held
from graphpar.place.layout import Layout
from graphpar.place.route import routes
from graphpar.place.transitions import FIRST_ONLY, Transition, as_summand, transitions

Passing: TypeAlias = "Mapping[str, tuple[Mapping[Node, State], State]]"  # by mesh axis: operands' states, result's
Conversion: TypeAlias = "tuple[Node, str, State, str]"  # of a value, over a mesh axis, to a state, in a body


@dataclass(frozen=True)
class Placed:
    """A graph with a state on every value and every collective in it.

    `shards` per node: which mesh axes cut each factor, outermost first.
    """

    graph: Graph
    layout: Layout
    claims: Mapping[Node, Claims]
    refused: tuple[tuple[Node, Node, str], ...] = ()


def place(layout: Layout) -> Placed:
    """Place every node of the graph in order."""
    return _Placer(layout).run()


@dataclass
class _Placer:
    layout: Layout
    new: dict[Node, Node] = field(default_factory=dict[Node, Node])
    order: list[Node] = field(default_factory=list[Node])
    converted: dict[Conversion, Node] = field(default_factory=dict["Conversion", Node])
    claims: dict[Node, Claims] = field(default_factory=dict[Node, "Claims"])
    entered: dict[tuple[Node, str], Node] = field(default_factory=dict[tuple[Node, str], Node])
    sources: dict[Node, Node] = field(default_factory=dict[Node, Node])  # the node that a placed value comes from
    refused: list[tuple[Node, Node, str]] = field(default_factory=list[tuple[Node, Node, str]])
    repeated: frozenset[str] = frozenset()  # the modules that are called several times

    @cached_property
    def claimer(self) -> Claimer:
        """What claims the mesh axes in each op."""
        return Claimer(self.layout, self.new, self.claims)

    @cached_property
    def causes(self) -> Causes:
        """Why values change their states."""
        return Causes(self.layout, self.claimer, self.claims, self.sources)

    @property
    def kinds(self) -> dict[Node, str]:
        """What kind of value each node is."""
        return self.claimer.kinds

    def run(self) -> Placed:
        graph = self.layout.named.graph
        self.repeated = repeated(graph)
        for node in graph.nodes:
            self.kinds[node] = self.claimer.kind(node)
            placed = self._place(node, self.layout.named.uses[node])
            self.new[node] = self._summed(placed) if node in self.layout.sent else placed
        outputs = tuple(self._resolved(self.new[o]) for o in graph.outputs)
        return Placed(
            replace(graph, nodes=tuple(self.order), outputs=outputs), self.layout, self.claims, tuple(self.refused)
        )

    # ------------------------------------------------------------ one node

    def _place(self, node: Node, use: Use) -> Node:
        claims = self.claimer.of(node, use)
        if node.op == "sdpa" and node.attrs["causal"] and self._cuts_queries(node, claims):
            return self._with_mask(node, use)
        if node.op == "linear" and isinstance(node.args[2], Node) and any(c[0] in use.summed for c in claims.values()):
            return self._split_bias(node, use)
        self._enter(node, claims)
        state = {a: self._result(node, use, claims, a) for a in self._axes()}
        passing = self._passing(node, claims)
        state |= {a: result for a, (_, result) in passing.items()}
        args = tuple(
            self._converted(arg, node, i, claims, passing) if isinstance(arg, Node) else arg
            for i, arg in enumerate(node.args)
        )
        causes = self.causes.own(node, state, claims)
        made = replace(node, args=args, state=state, attrs=self._attrs(node, use, claims), causes=causes)
        self.claims[made] = claims
        self.sources[made] = node
        self.order.append(made)
        return made

    def _passing(self, node: Node, claims: Claims) -> Passing:
        """Along which axes that it does not cut an op needs its operands otherwise than whole, and what it makes."""
        found: dict[str, tuple[Mapping[Node, State], State]] = {}
        route = self.layout.experts.routing.get(node)
        whole = self.claimer.whole(route) if route else frozenset[str]()
        for axis in (a for a in self._axes() if a not in claims):
            given = {a: (self._given(a, node).state or {}).get(axis, I) for a in node.operands}
            special = held(node, given, whole=axis in whole) if route else None
            if special is not None:
                found[axis] = (dict(zip(node.operands, special[0], strict=True)), special[1])
            elif self._passes(node, axis):
                found[axis] = (dict.fromkeys(node.operands, P), P)
        return found

    def _cuts_queries(self, node: Node, claims: Claims) -> bool:
        queries = node.named[-2]
        return any(f.id == factor for f in queries.factors for factor, _ in claims.values())

    def _with_mask(self, node: Node, use: Use) -> Node:
        masked, made = forms.masked(node)
        for part in made:
            self.kinds[part] = "free"
            self.new[part] = self._place(part, Use(frozenset(), frozenset()))
        self.kinds[masked] = self.kinds[node]
        return self._place(masked, use)

    def _split_bias(self, node: Node, use: Use) -> Node:
        product, added = forms.bias_apart(node)
        self.kinds[product] = self.kinds[added] = "data"
        self.new[product] = self._place(product, use)
        return self._place(added, Use(frozenset(), frozenset()))

    def _axes(self) -> Iterable[str]:
        return [a for a, n in self.layout.mesh.items() if n > 1]

    def _result(self, node: Node, use: Use, claims: Claims, axis: str) -> State:
        if axis not in claims:
            return I
        factor = claims[axis][0]
        if any(f.id == factor for a in node.named for f in a.factors):
            return Shard(factor, self.layout.named.factors[factor].name)
        if node.op in CLASSES and is_class(node, factor):
            return CLASSES[node.op][1]
        return P if factor in use.summed else I

    def _passes(self, node: Node, axis: str) -> bool:
        """Whether a pending sum along this axis flows through the op: it is linear in the operands that are pending."""
        operands = {i: self._given(a, node) for i, a in enumerate(node.args) if isinstance(a, Node)}
        pending = {i for i, a in operands.items() if (a.state or {}).get(axis) == P}
        return bool(pending) and any(pending == set(group) == set(operands) for group in linear_in(node))

    def _attrs(self, node: Node, use: Use, claims: Claims) -> Mapping[str, object]:
        split = [a for a, (f, _) in claims.items() if self._reduces(node, use, f)]
        return {**node.attrs, "split": tuple(split)} if split else node.attrs

    def _reduces(self, node: Node, use: Use, factor: int) -> bool:
        """Whether the op runs over a cut axis in its own way: classes, statistics, means."""
        if node.op in CLASSES:
            return is_class(node, factor)
        if splits(node):
            return factor in use.whole
        return node.op == "mean" and factor in use.summed

    # ------------------------------------------------------------ operands

    def _call(self, value: Node, consumer: Node) -> str:
        """The call of a module with several calls that a value enters for this consumer."""
        if value.op in LEAVES - {"input"}:
            return ""
        return entered(value.origin.module, consumer.origin.module, self.repeated)

    def _given(self, arg: Node, node: Node) -> Node:
        return self.entered.get((arg, self._call(arg, node)), self.new[arg])

    def _enter(self, node: Node, claims: Claims) -> None:
        """Give a module that is called several times each value as the first op there needs it, nothing pending."""
        for i, arg in enumerate(node.args):
            if isinstance(arg, Node) and (call := self._call(arg, node)) and (arg, call) not in self.entered:
                wanted = self._wanted(node, i, claims, {})
                whole = {axis: state if isinstance(state, Shard) else I for axis, state in wanted.items()}
                outside = replace(node, origin=replace(node.origin, module=call.rpartition(".")[0]))
                self.entered[arg, call] = self._convert(
                    self.new[arg], whole, outside, claims, gradient=self.kinds[arg] == "data"
                )

    def _converted(self, arg: Node, node: Node, index: int, claims: Claims, passing: Passing) -> Node:
        want = self._wanted(node, index, claims, passing)
        return self._convert(self._given(arg, node), want, node, claims, gradient=self.kinds[arg] == "data")

    def _wanted(self, node: Node, index: int, claims: Claims, passing: Passing) -> dict[str, State]:
        """The state that an op needs of an operand along each axis."""
        view, operand = node.views[index] if node.operand_axes else None, node.args[index]
        assert isinstance(operand, Node)
        want: dict[str, State] = {}
        for axis in self._axes():
            if axis in passing:
                want[axis] = passing[axis][0][operand]
            elif axis not in claims:
                want[axis] = I
            else:
                factor = claims[axis][0]
                has = any(f.id == factor for a in view or () for f in a.factors)
                want[axis] = Shard(factor, self.layout.named.factors[factor].name) if has else R
        if node.op in CLASSES:
            split = [a for a, (f, _) in claims.items() if is_class(node, f)]
            want |= {a: I for a in split if want[a] == R}
        return want

    def _convert(
        self, value: Node, want: Mapping[str, State], consumer: Node, claims: Claims, *, gradient: bool
    ) -> Node:
        for axis, target in _moves(value, want, self.layout.order):
            have = (value.state or {})[axis]
            found = transitions(have, target, gradient=gradient)
            found = as_summand(have, target) if found is None else found
            if found is None or not self._can_move(value, found, axis, target):
                self.refused.append((value, consumer, f"{axis}: {(value.state or {})[axis]} -> {target}"))
                continue
            for step in found:
                value = self._step(value, step, axis, target, consumer, claims)
        return value

    def _can_move(self, value: Node, steps: Sequence[Transition], axis: str, target: State) -> bool:
        """Rows by expert, and their routing, are exchanged, and neither gathered nor summed into parts."""
        states = ((value.state or {})[axis], target)
        cut = {s.factor for s in states if isinstance(s, Shard)}
        if not any(f.id in cut for a in value.named if a.ragged for f in a.factors):
            return True
        return all(step.op in (ROUTING_MOVES if value.dtype == "routing" else ROW_MOVES) for step in steps)

    def _step(self, value: Node, step: Transition, axis: str, target: State, consumer: Node, claims: Claims) -> Node:
        state = I if step.op == "all_reduce" else target
        key = (value, axis, state, body_of(value, consumer) or self._call(value, consumer))
        if key not in self.converted:
            have = (value.state or {})[axis]
            args = (value, *self._routing(value, axis, have, target, consumer, claims))
            made = Node(
                step.op,
                args,
                {
                    "axis": axis,
                    "forward": step.forward,
                    "backward": step.backward,
                    "from": have,
                    "rule": self.causes.rule(value, axis, claims),
                },
                value.shape,
                value.dtype,
                replace(consumer.origin, names=value.origin.names),
                value.axes,
                tuple(a.axes for a in args),
                {**(value.state or {}), axis: state},
                self.causes.reason(step, value, axis, target, consumer, claims),
                self.causes.of(value, axis, consumer, claims),
            )
            self.converted[key] = made
            self.claims[made] = {}
            self.sources[made] = self.sources[value]
            self.order.append(made)
        return self.converted[key]

    def _routing(
        self, value: Node, axis: str, have: State, target: State, consumer: Node, claims: Claims
    ) -> tuple[Node, ...]:
        """What says which rows go where, for rows that change their state: the routing as it is cut by experts."""
        if not value.ragged or value.dtype == "routing":
            return ()
        routing = self.new[self.layout.experts.routing[self.sources[value]]]
        cut = next((s for s in (have, target) if isinstance(s, Shard) and s.name == "experts"), None)
        want = {**(routing.state or {}), **({axis: cut} if cut else {})}
        return (self._convert(routing, want, consumer, claims, gradient=False),)

    def _summed(self, value: Node) -> Node:
        """A value in which no sum is pending."""
        want = {axis: I if state == P else state for axis, state in (value.state or {}).items()}
        return self._convert(value, want, value, {}, gradient=value.dtype.startswith(("float", "bfloat")))

    def _resolved(self, loss: Node) -> Node:
        """The loss: a summand over the axes that cut the data, even if whole there, and one value on the others."""
        data = self.layout.spec.data_axes
        want = {a: s if a in data and s == P else I for a, s in (loss.state or {}).items()}
        found = self._convert(loss, want, loss, {}, gradient=True)
        for axis in (a for a, s in want.items() if a in data and s == I):
            found = self._step(found, FIRST_ONLY, axis, P, loss, {})
        return found


def _moves(value: Node, want: Mapping[str, State], order: Callable[[int], Sequence[str]]) -> list[tuple[str, State]]:
    """In which order the states of a value change; rows by expert change along one axis at a time, in any order."""
    have = value.state or {}
    if value.ragged:
        return [(a, s) for a, s in want.items() if have[a] != s]
    return routes(have, want, order, lambda a, b: _apart(value, a, b))


def _apart(value: Node, a: int, b: int) -> bool:
    """Whether two factors lie in different dimensions of a value."""
    return not any({a, b} <= {f.id for f in axis.factors} for axis in value.named)
