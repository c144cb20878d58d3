"""Experts with a capacity: of each group of tokens, an expert takes so many rows, and the rest pass by.

This changes what a model computes, so it is done where a spec says so and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from graphpar.errors import Diagnostic, GraphparError
from graphpar.ir.graph import Graph, Node, Size, rebuild
from graphpar.language.schema import Moe, Spec
from graphpar.rewrite.rowwise import rows_of, same, with_shape


def with_capacity(graph: Graph, spec: Spec, batch: Size) -> Graph:
    """The graph with a limit on the rows of every expert, if the spec says so. `batch` is the number of sequences.

    Raises GraphparError if tokens do not lie in the groups that the spec names.
    """
    moe = spec.moe
    if moe is None or moe.capacity_factor is None:
        return graph

    def rule(node: Node) -> Node | None:
        return _limited(node, moe, batch) if node.op == "route" else None

    return rebuild(graph, rule)


def _limited(route: Node, moe: Moe, batch: Size) -> Node:
    (chosen,) = route.operands
    grouped, groups = (chosen, 0) if moe.group is None else (_by_row(chosen, moe, batch), 1)
    attrs = {"experts": route.attrs["experts"], "factor": moe.capacity_factor, "groups": groups}
    mask = Node("kept", (grouped,), attrs, grouped.shape, "bool", replace(route.origin, names=("taken",)))
    return replace(route, args=(chosen, with_shape(mask, chosen.shape)))


def _by_row(chosen: Node, moe: Moe, batch: Size) -> Node:
    """The choices [batch, tokens, topk] of tokens that are flat or in rows."""
    *tokens, topk = chosen.shape
    if tokens and same(tokens[0], batch):
        return chosen
    total = prod(tokens)
    if moe.group != "batch" or len(tokens) != 1 or rows_of((batch, total / batch), total) != 2:  # type: ignore[operator]
        raise GraphparError(_no_groups(chosen, moe))
    return with_shape(chosen, (batch, total / batch, topk))  # type: ignore[operator]


def _no_groups(chosen: Node, moe: Moe) -> Diagnostic:
    return Diagnostic(
        "not-available",
        moe.span_of("group"),
        f"`group: {moe.group}` is not available for the tokens of {chosen.origin.module or 'this model'}",
        why=(f"a group is a row of the batch, or all of it; the choices are {list(chosen.shape)}",),
        fix="group: batch",
    )
