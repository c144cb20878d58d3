"""What plan.json says of mixtures of experts: which rank has which, and how many rows come to them."""

from __future__ import annotations

from typing import Any

from graphpar.codegen.plan_causes import place_of
from graphpar.codegen.program import Program
from graphpar.ir.graph import Graph, Node, Size

_PRODUCTS = ("expert_linear", "einsum", "matmul")


def experts(graph: Graph, program: Program) -> list[dict[str, Any]]:
    """An entry for each mixture, or for one in each layer of a loop.

    `per_rank` experts of all are on each rank; `axes` are what cuts them. A rank sends `rows` of `width` numbers to
    them and gets as many back: `topk` of each of its `tokens`, or, where a dense tensor says which token goes where,
    a row for each place that an expert has.
    """
    found: dict[Node | str, dict[str, Any]] = {}
    for node in graph.nodes:
        stack = next((a for a in node.operands[:2] if _is_stack(node, a)), None)
        if stack is None:
            continue
        route = _back(node.operands[-1], "route") if node.op == "expert_linear" else None
        key = route or node.origin.module
        if key not in found:
            at = route or node
            layers = len(graph.members(at.origin.module))
            sent = _of_tokens(route, program) if route else _of_places(node, stack, program)
            found[key] = {**place_of(at.origin), "layers": layers, **_stack(stack, program), **sent, **_row(node)}
    return list(found.values())


def _is_stack(product: Node, operand: Node) -> bool:
    """Whether an operand of a product holds a matrix of each expert."""
    if product.op not in _PRODUCTS or operand.op != "parameter" or operand.rank < 3:
        return False
    return any(f.name in ("experts", "expert_groups") for f in operand.named[0].factors)


def _stack(stack: Node, program: Program) -> dict[str, Any]:
    local, axis = program.cuts(stack), stack.named[0]
    axes = [a for factor in axis.factors for a in local.by_factor.get(factor.id, ())]
    return {"experts": int(stack.shape[0]), "axes": axes, "per_rank": int(local.axis(axis))}


def _of_tokens(route: Node, program: Program) -> dict[str, Any]:
    topk = int(route.operands[0].shape[-1])
    rows: Size = program.cuts(route).axis(route.named[0])
    kept = _back(route.operands[1], "kept") if len(route.operands) > 1 else None
    limit = kept and kept.attrs["factor"]
    return {"topk": topk, "capacity_factor": limit, "tokens": str(rows / topk), "rows": str(rows)}


def _of_places(node: Node, stack: Node, program: Program) -> dict[str, Any]:
    data = next(a for a in node.operands if a is not stack)
    rows: Size = 1
    for axis in data.named[:-1]:
        rows = rows * program.cuts(data).axis(axis)
    return {"topk": None, "capacity_factor": None, "tokens": None, "rows": str(rows)}


def _row(node: Node) -> dict[str, Any]:
    data = next(a for a in node.operands if a.op != "parameter")
    return {"width": int(data.shape[-1]), "dtype": data.dtype}


def _back(node: Node, op: str) -> Node:
    """The op whose value a rank has here, in whatever state."""
    while node.op != op:
        node = node.operands[0]
    return node
