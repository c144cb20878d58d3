"""What a value is along each mesh axis, read from its named axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from graphpar.viz.colours import pieces
from graphpar.viz.picture import shape
from graphpar.viz.program import separate

Plan: TypeAlias = Mapping[str, Any]

_CUT = re.compile(r"([\w'+]+)@(\w+(?:\+\w+)*)")


def values(axes: str, pending: str, plan: Plan) -> list[dict[str, Any]]:
    """Each value of a statement's comment, `batch@dp seq, heads@tp`, with its state along every mesh axis."""
    return [
        {"pieces": pieces(shape(one, pending), plan["mesh"]), "states": states(one, pending, plan, "that of its stage")}
        for one in separate(axes)
    ]


def states(axes: str, pending: str, plan: Plan, staged: str) -> list[dict[str, str]]:
    """Cut and by which dimension, partial, or replicated, along each mesh axis; `staged` along that of a pipeline."""
    along = (plan.get("pipeline") or {}).get("axis")
    return [
        {"axis": axis, "state": staged if axis == along else _state(axis, axes, pending, ranks)}
        for axis, ranks in plan["mesh"].items()
    ]


def dimensions(axes: str, count: int) -> Sequence[str]:
    """The name of each dimension: `(heads@tp d_head) d_model` are two."""
    names = re.findall(r"\([^)]*\)|\S+", axes)
    return names if len(names) == count else [f"dimension {i}" for i in range(count)]


def _state(axis: str, axes: str, pending: str, ranks: int) -> str:
    if axis in re.findall(r"\w+", pending.removeprefix("partial")):
        return "partial: a sum is still to be taken"
    cut = [name for name, over in _CUT.findall(axes) if axis in over.split("+")]
    if cut:
        return f"cut: {', '.join(cut)}"
    return "replicated" if ranks > 1 else "one rank"
