"""Floats that have the dtype the source gives them, whatever that of the model is: counts, not made of parameters."""

from __future__ import annotations

from graphpar.ir.graph import Node


def fixed(node: Node) -> bool:
    """Whether a float is made of whole numbers and constants alone."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if top in seen or not top.dtype.startswith(("float", "bfloat")):
            continue
        if top.op in ("parameter", "buffer", "loop_enter", "loop_leave"):  # what goes round a loop is not followed
            return False
        seen.add(top)
        stack.extend(top.operands)
    return bool(seen)
