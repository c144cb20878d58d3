"""Gradient sums moved onto the parameters.

What it does   a value computed from parameters alone, whose gradient is still to be summed over a mesh axis, is
               computed from parameters in that state instead; a parameter all of whose uses leave its gradient to be
               summed over an axis says so, and the sum is taken once per step.
Why            the transposed sum of every use is the sum of the transposed uses; once per step, in buckets, it costs
               less than once per use and microbatch.
When not       some use of the parameter has its full gradient on every rank already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphpar.ir.graph import Cause, Graph, Node, rebuild
from graphpar.ir.states import R
from graphpar.rewrite.passes import Pass


def sums_on_parameters(graph: Graph) -> Graph:
    """Push sums through what depends on parameters alone, then take them off the uses."""
    while (pushed := _push(graph)) is not None:
        graph = pushed
    return _collect(graph)


def _push(graph: Graph) -> Graph | None:
    users = graph.users()
    trained = _from_parameters(graph)
    for node in graph.nodes:
        if node.op != "grad_all_reduce":
            continue
        value, axis = node.operands[0], node.attrs["axis"]  # rows by expert have their routing beside them
        same = all(u.op == "grad_all_reduce" and u.attrs["axis"] == axis for u in users[value])
        if value in trained and same and value.op == "all_gather_same" and value.attrs["axis"] == axis:
            return _gathered(graph, node, value)
        if value in trained and same and value.op != "parameter" and "forward" not in value.attrs:
            return _through(graph, node, value, axis, trained)
    return None


def _gathered(graph: Graph, node: Node, value: Node) -> Graph:
    """A gathered value whose gradient is summed is an `all_gather`: its backward sums and cuts at once."""
    attrs = {**value.attrs, "backward": "reduce_scatter"}
    gathered = replace(value, op="all_gather", attrs=attrs, state=node.state, causes=(*value.causes, *node.causes))
    originals = iter(graph.nodes)
    return rebuild(graph, lambda _: gathered if next(originals) is node else None)


def _through(graph: Graph, node: Node, value: Node, axis: str, trained: set[Node]) -> Graph:
    """`sum of f(p)` becomes `f(sum of p)`."""
    args = tuple(_summed(node, a, axis) if isinstance(a, Node) and a in trained else a for a in value.args)
    moved = replace(value, args=args, state={**(value.state or {}), axis: R})
    originals = iter(graph.nodes)
    return rebuild(graph, lambda _: moved if next(originals) is node else None)


def _summed(like: Node, operand: Node, axis: str) -> Node:
    """The same transition for an operand."""
    state = {**(operand.state or {}), axis: R}
    kept = {"shape": operand.shape, "dtype": operand.dtype, "axes": operand.axes, "operand_axes": (operand.axes,)}
    return replace(like, args=(operand,), state=state, **kept)


def _from_parameters(graph: Graph) -> set[Node]:
    """Values that depend on some parameter and on no input."""
    fed: set[Node] = set()
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op in ("input", "loop_enter") or any(a in fed for a in node.operands):
            fed.add(node)
        elif node.op == "parameter" or any(a in found for a in node.operands):
            found.add(node)
    return found


def _collect(graph: Graph) -> Graph:
    """Mark on each parameter the axes over which every use leaves its gradient to be summed."""
    users = graph.users()
    sums = {n: _common_sums(n, users) for n in graph.nodes if n.op == "parameter"}
    roots: dict[Node, Node] = {}
    originals = iter(graph.nodes)

    def rule(node: Node) -> Node | None:
        old = next(originals)
        if old.op == "parameter":
            roots[old] = old
            axes = tuple(sorted(sums[old]))
            return replace(
                node,
                attrs={**node.attrs, "grad_sum": axes},
                state={**(node.state or {}), **dict.fromkeys(axes, R)},
                causes=(*node.causes, *(c for c in dict.fromkeys(_uses(old, users)) if c.axis in axes)),
            )
        if old.op == "grad_all_reduce" and old.operands[0] in roots:
            roots[old] = roots[old.operands[0]]
            if old.attrs["axis"] in sums[roots[old]]:
                return node.operands[0]
        return None

    return rebuild(graph, rule)


def _common_sums(node: Node, users: dict[Node, list[Node]]) -> frozenset[str]:
    found: list[frozenset[str]] = []
    for user in users[node]:
        if user.op == "grad_all_reduce":
            found.append(_common_sums(user, users) | {user.attrs["axis"]})
        else:
            found.append(frozenset())
    return frozenset.intersection(*found) if found else frozenset()


def _uses(node: Node, users: dict[Node, list[Node]]) -> Iterator[Cause]:
    """What leaves the gradient of a parameter to be summed."""
    for user in users[node]:
        if user.op == "grad_all_reduce":
            yield from (replace(cause, role="use") for cause in user.causes if cause.role == "needed")
            yield from _uses(user, users)


hoist = Pass(whole=sums_on_parameters)
