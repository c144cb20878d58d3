"""The graph as text."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from graphpar.ir.axes import spell_all
from graphpar.ir.graph import Graph, Node


def show(graph: Graph) -> str:
    """One line per node: name, shape or named axes, op, operands, attributes."""
    names = _names(graph)
    lines = [_line(node, names) for node in graph.nodes]
    return "\n".join([*lines, "return " + ", ".join(names[o] for o in graph.outputs)]) + "\n"


def _names(graph: Graph) -> dict[Node, str]:
    names: dict[Node, str] = {}
    counts: dict[str, int] = {}
    for node in graph.nodes:
        base = node.attrs["name"] if node.op in ("parameter", "buffer", "input") else node.op
        counts[base] = counts.get(base, 0) + 1
        names[node] = base if node.op in ("parameter", "buffer", "input") else f"{base}_{counts[base]}"
    return names


def _line(node: Node, names: Mapping[Node, str]) -> str:
    args = ", ".join(names[a] if isinstance(a, Node) else _scalar(a) for a in node.args)
    attrs = "".join(f" {k}={v}" for k, v in node.attrs.items() if k != "name")
    shape = spell_all(node.axes) if node.axes is not None else " ".join(str(s) for s in node.shape)
    state = "".join(f" {a}:{s}" for a, s in (node.state or {}).items() if str(s) != "I")
    dtype = "" if node.dtype == "float32" else f" {node.dtype}"
    where = f"  @{node.origin.module}" if node.origin.module else ""
    return f"{names[node]}: [{shape}]{dtype}{state} = {node.op}({args}){attrs}{where}"


def _scalar(value: object) -> str:
    return str(value) if isinstance(value, sympy.Expr) else repr(value)
