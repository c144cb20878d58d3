"""Expressions of a mixture of experts: rows by expert, and how they change hands."""

from __future__ import annotations

from math import prod

from graphpar.codegen.expression import ATOM, Scope, Text, arg
from graphpar.ir.graph import Node, Size
from graphpar.ir.states import Shard, State

# From how rows lie to how they shall lie: what moves them, and what moves the routing that goes with them.
_ROWS = {"all_to_all": "to_experts", "slice_partial": "own_rows", "pad_partial": "all_rows"}
_ROUTING = {"all_to_all": "exchange_counts", "slice_": "own_counts"}

FUNCTIONS = {  # that do what an op is called, where it moves rows or their routing
    "all_to_all": ("to_experts", "to_tokens", "exchange_counts"),
    "slice_partial": ("own_rows",),
    "pad_partial": ("all_rows",),
    "slice_": ("own_counts",),
}


def moves_rows(node: Node) -> bool:
    """Whether a transition changes which rows a rank has, and not only what is in them."""
    value = node.operands[0]
    states: tuple[State, State] = (node.attrs["from"], (node.state or {})[node.attrs["axis"]])
    cut = {s.factor for s in states if isinstance(s, Shard)}
    return any(f.id in cut for axis in value.named if axis.ragged for f in axis.factors)


def moved(node: Node, scope: Scope) -> Text:
    """Rows, or their routing, that change hands along a mesh axis."""
    routing = node.dtype == "routing"
    name = (_ROUTING if routing else _ROWS)[node.op]
    if name == "to_experts" and node.attrs["from"].name == "experts":
        name = "to_tokens"
    args = [arg(node, i, scope).text for i in range(len(node.args))]
    return Text(f"{scope.need(name)}({', '.join(args)}, {scope.axis((node.attrs['axis'],))})")


def route(node: Node, scope: Scope) -> Text:
    limit = f", kept={arg(node, 1, scope).text}" if len(node.args) > 1 else ""
    return Text(f"{scope.need('route')}({arg(node, 0, scope).text}, experts={node.attrs['experts']}{limit})")


def kept(node: Node, scope: Scope) -> Text:
    """The choices that experts with a capacity take."""
    experts, groups, factor = (node.attrs[k] for k in ("experts", "groups", "factor"))
    group: Size = prod(node.shape[groups:-1])
    room = f"{scope.need('capacity')}({scope.size(group, of=node)}, experts={experts}, factor={factor})"
    options = [f"experts={experts}", f"capacity={room}", *([f"group={groups}"] if groups else [])]
    return Text(f"{scope.need('kept')}({arg(node, 0, scope).text}, {', '.join(options)})")


def indexed_linear(node: Node, scope: Scope) -> Text:
    """Each row with a matrix of its own, where rows are not those of a mixture of experts."""
    x, stack, index = (arg(node, i, scope) for i in range(3))
    turned = "" if node.attrs["transposed"] else ".mT"
    return Text(f"({x.inside(ATOM)}.unsqueeze(-2) @ {stack.inside(ATOM)}[{index.text}]{turned}).squeeze(-2)")


def by_expert(node: Node, scope: Scope) -> Text:
    """Dispatch, combine, and what runs by expert."""
    args = [arg(node, i, scope).text for i in range(len(node.args))]
    args += ["transposed=True"] if node.attrs.get("transposed") else []
    return Text(f"{scope.need(node.op)}({', '.join(args)})")
