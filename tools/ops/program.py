"""A case as a graph of leaves and one op, and that graph placed for a layout that cuts chosen factors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

from graphpar.codegen.loss import divide_by_count
from graphpar.ir.axes import Factor
from graphpar.ir.graph import Graph, Node, Tensor
from graphpar.ir.states import P, State
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec
from graphpar.names.declared import Declared
from graphpar.names.named import Named, name
from graphpar.place.layout import Layout
from graphpar.place.place import place
from tools.ops.case import SPARE, UNEVEN, Case, Operand

PENDING = "pending_"  # a leaf whose first dimension is summed away: cut that, and the operand is a pending sum


@dataclass(frozen=True)
class Sharding:
    """What is cut: factors of the op and the mesh axes that cut each, and operands that are pending sums over axes."""

    cut: Mapping[int, tuple[str, ...]]
    pending: Mapping[str, tuple[str, ...]]

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes, each of two ranks, outermost first."""
        return tuple(sorted({a for axes in (*self.cut.values(), *self.pending.values()) for a in axes}))


@dataclass(frozen=True)
class Whole:
    """A case as a graph with named axes; `op` is the node of the case's op."""

    case: Case
    named: Named
    op: Node
    pending: frozenset[str]

    @property
    def factors(self) -> dict[int, Factor]:
        """Every factor that the op sees in an operand or makes in its result."""
        axes = [*(a for view in self.op.views for a in view or ()), *self.op.named]
        return {f.id: f for axis in axes for f in axis.factors}


@dataclass(frozen=True)
class Program:
    """A placed case. `claims` are the factors that the op runs cut, by mesh axis, `states` those of its result."""

    whole: Whole
    sharding: Sharding
    graph: Graph
    layout: Layout
    op: Node
    claims: Mapping[str, int]
    refused: bool

    @property
    def states(self) -> Mapping[str, State]:
        """The state of the result per mesh axis."""
        return self.op.state or {}

    def __str__(self) -> str:
        factors = self.whole.named.factors
        words = [f"{factors[f].name}={factors[f].size}: {' '.join(axes)}" for f, axes in self.sharding.cut.items()]
        return "; ".join([*words, *(f"{n} pending: {' '.join(axes)}" for n, axes in self.sharding.pending.items())])

    def passes(self, axis: str) -> bool:
        """Whether a pending sum flows through the op along a mesh axis."""
        return axis not in self.claims and self.states.get(axis) == P


def whole(case: Case, pending: frozenset[str] = frozenset()) -> Whole:
    """The graph of a case; operands named in `pending` are sums over a first dimension of their leaves."""
    nodes: dict[Node, None] = {}
    leaves = {o.name: _leaf(o, o.name in pending) for o in case.operands}
    result = case.node(leaves)

    def put(node: Node) -> None:
        for operand in node.operands:
            put(operand)
        nodes[node] = None

    put(result)
    tensors = {
        n.attrs["name"]: Tensor(n.attrs["name"], tuple(int(s) for s in n.shape), n.dtype)
        for n in nodes
        if n.op == "parameter"
    }
    graph = Graph(tuple(nodes), (result,), {}, {}, tensors)
    named = name(graph, Declared.of(_spec((("batch", ("x",)),), _named(nodes))))
    (op,) = named.graph.outputs
    while op.op != case.op:
        (op, *_) = op.operands
    return Whole(case, named, op, pending)


def _named(nodes: Iterable[Node]) -> str:
    """The part of a spec that calls every dimension of an uneven size the vocabulary, which may be padded."""
    found = {
        n.attrs["name"]: " ".join("vocab" if s == UNEVEN else "_" for s in n.shape)
        for n in nodes
        if n.op == "parameter" and UNEVEN in n.shape
    }
    return f"names: {{{', '.join(f'{word}: {axes}' for word, axes in found.items())}}}\n" if found else ""


def _leaf(operand: Operand, pending: bool) -> Node:
    """A parameter, or an input of ids; a mask is where one is positive. Reshaped where dimensions have factors."""
    sizes = [f for d in operand.dims for f in d]
    kind = "input" if operand.kind == "ids" else "parameter"
    word, first = (f"{PENDING}{operand.name}", (SPARE,)) if pending else (operand.name, ())
    dtype = "int64" if operand.kind == "ids" else "float32"
    found = Node(kind, (), {"name": word}, (*first, *sizes), dtype)
    if operand.kind == "mask":
        found = Node("gt", (found, 0.0), {}, tuple(sizes), "bool")
    if pending:
        found = Node("sum", (found,), {"dims": (0,), "keep": False}, tuple(sizes), operand.dtype)
    if any(len(d) > 1 for d in operand.dims):
        found = Node("reshape", (found,), {}, tuple(map(prod, operand.dims)), operand.dtype)
    return found


def placed(whole: Whole, sharding: Sharding) -> Program:
    """The graph with a state on every value, for a layout that cuts these factors."""
    words = {f"cut{i}": axes for i, axes in enumerate(sharding.cut.values())}
    words |= {f"{PENDING}{n}": axes for n, axes in sharding.pending.items()}
    dims = {f"cut{i}": ((factor,),) for i, factor in enumerate(sharding.cut)}
    dims |= {f"{PENDING}{n}": ((_first(whole.named, n),),) for n in sharding.pending}
    layout = Layout(_spec(tuple(words.items())), replace(whole.named, dims=dims), dict.fromkeys(sharding.axes, 2))
    made = place(layout)
    graph = divide_by_count(made.graph)
    op = next(n for n in reversed(graph.nodes) if n.op == whole.op.op and n.shape == whole.op.shape)
    before = next(n for n in reversed(made.graph.nodes) if n.op == whole.op.op and n.shape == whole.op.shape)
    claims = {axis: factor for axis, (factor, _) in made.claims[before].items()}
    return Program(whole, sharding, graph, layout, op, claims, bool(layout.problems or made.refused))


def _first(named: Named, operand: str) -> int:
    leaf = next(n for n in named.graph.nodes if n.attrs.get("name") == f"{PENDING}{operand}")
    return leaf.named[0].factors[0].id


@cache
def _spec(words: Sequence[tuple[str, tuple[str, ...]]], more: str = "") -> Spec:
    axes = sorted({a for _, names in words for a in names})
    mesh = ", ".join(f"{a}: 2" for a in axes)
    rules = "".join(f"- {word}: [{', '.join(names)}]\n" for word, names in words)
    return parse_spec(f"version: 1\nmesh: {{{mesh}}}\nuneven: {{vocab: pad}}\n{more}layout:\n{rules}", "spec.yaml")
