"""What plan.json says of causes: why a collective is there, and why a parameter is cut and its gradient summed."""

from __future__ import annotations

from typing import Any

from graphpar.ir.graph import Cause, Graph, Node, Origin
from graphpar.language.schema import LayoutRule


def place_of(origin: Origin) -> dict[str, Any]:
    """A module and a line of the source."""
    where = f"{origin.file.rpartition('/')[2]}:{origin.line}" if origin.file else None
    return {"module": origin.module, "where": where}


def as_rule(rule: LayoutRule | None) -> dict[str, Any] | None:
    """A rule of the spec, and its line there."""
    return {"text": str(rule), "line": rule.span.line} if rule is not None else None


def as_cause(cause: Cause) -> dict[str, Any]:
    """One cause; what the words mean is said in `graphpar.ir.graph.Cause`."""
    return {
        "role": cause.role,
        "axis": cause.axis,
        "how": cause.how,
        "op": cause.op,
        **place_of(cause.origin),
        "dim": cause.dim,
        "rule": as_rule(cause.rule),
    }


def causes(node: Node) -> list[dict[str, Any]]:
    """Every cause of a node."""
    return [as_cause(cause) for cause in node.causes]


def families(graph: Graph) -> dict[str, list[dict[str, Any]]]:
    """The causes of each parameter and buffer; those of a loop's members have one name with a star."""
    return {n.attrs["name"]: causes(n) for n in graph.nodes if n.op in ("parameter", "buffer")}
