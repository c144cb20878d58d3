"""Infer the named axes of every value of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from graphpar.ir.graph import Graph, Node, Size
from graphpar.names.atoms import Atoms
from graphpar.names.indices import connect
from graphpar.names.signature import Axes, Signature
from graphpar.ops.rules import RULES
from graphpar.ops.shapes import signature


@dataclass(frozen=True)
class Unified:
    """A graph with the signature of every node. Ops without a rule are listed in `unknown`."""

    graph: Graph
    atoms: Atoms
    signatures: Mapping[Node, Signature]
    unknown: tuple[Node, ...]

    @cached_property
    def users(self) -> Mapping[Node, list[Node]]:
        """For each node, the nodes that read it."""
        return self.graph.users()

    def axes(self, node: Node) -> Axes:
        """The axes of a node's result, fully resolved."""
        return tuple(tuple(self.atoms.resolve(a)) for a in self.signatures[node].result)


def unify(graph: Graph, more: Mapping[str, str]) -> Unified:
    """Run every op's rule over the graph, in order; `more` are rules for ops that graphpar does not know."""
    atoms = Atoms()
    found: dict[Node, Signature] = {}
    fed: dict[Size, tuple[int, ...]] = {}
    unknown: list[Node] = []
    calls: dict[object, Signature] = {}
    for node in graph.nodes:
        operands = [found[a].result if isinstance(a, Node) else None for a in node.args]
        if node.op == "input":  # all inputs are fed the same batch of the same length
            found[node] = Signature((), tuple(fed.setdefault(s, atoms.axis(s)) for s in node.shape))
            continue
        made = calls.get(_call(node)) or signature(node, operands, atoms, more)
        if made is None:
            unknown.append(node)
            axes = tuple(o for o in operands if o is not None)
            result = tuple(atoms.axis(s) for s in node.shape)
            whole = frozenset(a for o in (*axes, result) for axis in o for a in atoms.resolve(axis))
            made = Signature(tuple(operands), result, whole=whole)
        found[node] = made
        if "part" in node.attrs and node.op in RULES:  # the values and their numbers range over the same
            calls[_call(node)] = made
    unified = Unified(graph, atoms, found, tuple(unknown))
    connect(graph, unified.axes, atoms)
    return unified


def _call(node: Node) -> object:
    """What all results of one call share."""
    return node.op, node.args, repr([(k, v) for k, v in node.attrs.items() if k != "part"])
