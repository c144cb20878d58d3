"""passes.json: what each step of a compilation did, where and why, and how long it took."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphpar.ir.difference import Difference, difference
from graphpar.ir.graph import Graph, Node
from graphpar.rewrite.steps import Step

LOG = "passes.json"


@dataclass(frozen=True)
class Change:
    """One node that a step removed, added or changed: its op, its module, and why, as far as the step says."""

    change: str
    op: str
    module: str
    source: str
    why: str


def log(steps: Iterable[Step]) -> str:
    """The file. Only `seconds` are others each time."""
    return json.dumps({"version": 1, "steps": [_step(step) for step in steps]}, indent=1) + "\n"


def _step(step: Step) -> dict[str, Any]:
    found = difference(step.before, step.after)
    return {
        "name": step.name,
        "purpose": step.purpose,
        "seconds": round(step.seconds, 6),
        **counts(found),
        "changes": [{**vars(change), "times": times} for change, times in changes(found)],
    }


def counts(found: Difference) -> dict[str, int]:
    """How many nodes were removed, added and changed, and how many only had their axes or states told."""
    return {
        "removed": len(found.removed),
        "added": len(found.added),
        "changed": len(found.changed),
        "axes": found.axes,
        "states": found.states,
    }


def counted(found: Difference) -> str:
    """The same in words, what is none left out."""
    words = {
        "removed": "{} removed",
        "added": "{} added",
        "changed": "{} changed",
        "axes": "axes of {} values",
        "states": "states of {} values",
    }
    parts = [words[kind].format(number) for kind, number in counts(found).items() if number]
    return ", ".join([*parts, *(f"{path} {what}" for path, what in found.modules.items())])


def changes(found: Difference) -> list[tuple[Change, int]]:
    """What was done, in the order of the program; what is done alike in several layers once, with how often."""
    told = Counter[Change]()
    for change, times in _each(found):
        told[change] += times
    return list(told.items())


def _each(found: Difference) -> Iterator[tuple[Change, int]]:
    for path, what in found.modules.items():
        yield Change("changed", "module", path, "", what), 1
    marked: Sequence[tuple[str, Graph, Iterable[Node]]] = (
        ("removed", found.before, found.removed),
        ("added", found.after, found.added),
        ("changed", found.after, found.changed),
    )
    for change, graph, nodes in marked:
        for node in nodes:
            module = re.sub(r"(?<![^.])\d+(?![^.])", "*", home(node))
            what = f"{node.op} over {node.attrs['axis']}" if "forward" in node.attrs else node.op
            yield Change(change, what, module, source(node), why(found, node)), len(graph.members(home(node)))


def home(node: Node) -> str:
    """The module of a node; of a parameter the one that holds it."""
    name: str = node.attrs.get("name", "")
    return name.rpartition(".")[0] if node.op in ("parameter", "buffer") else node.origin.module


def source(node: Node) -> str:
    """The line of the source, without a path."""
    return f"{node.origin.file.rpartition('/')[2]}:{node.origin.line}" if node.origin.file else ""


def why(found: Difference, node: Node) -> str:
    """The reason that the step gives for a node, or what it changed in it."""
    if node in found.changed:
        name = f"{node.attrs['name'].rpartition('.')[2]}: " if node.op in ("parameter", "buffer") else ""
        return f"{name}{found.changed[node]}"
    rule = node.attrs.get("rule")
    return f"{node.note}, by `{rule}`" if rule else node.note
