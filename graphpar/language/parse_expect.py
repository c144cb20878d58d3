"""`expect`: the most that a plan may take. A plan that takes more is not written."""

from __future__ import annotations

import re

from graphpar.language.reader import Mapping, Node, Scalar
from graphpar.language.scalars import Problems, integer, kind_of, named_entries, section
from graphpar.language.schema import Budget, Expect, MeshSpec

PHASES = ("forward", "backward", "gradients")
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(B|KiB|MiB|GiB|TiB)")
_UNITS = {"B": 0, "KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4}
_EXAMPLE = "forward all_reduce tp: {count: 4, bytes: 2 MiB}"


def parse_expect(node: Node, mesh: MeshSpec | None, problems: Problems) -> Expect:
    """Budgets for collectives, memory and lines."""
    found = section(node, "`expect`", ("collectives", "memory", "lines"), problems)
    collectives = _collectives(found["collectives"][1], mesh, problems) if "collectives" in found else None
    memory = _size(found["memory"][1], problems) if "memory" in found else None
    lines = integer(found["lines"][1], "a number of lines", problems) if "lines" in found else None
    return Expect(collectives, memory, lines, node.span)


def _collectives(node: Node, mesh: MeshSpec | None, problems: Problems) -> tuple[Budget, ...]:
    budgets: list[Budget] = []
    for key, value in named_entries(node, "`collectives`", problems):
        words = key.text.split()
        known = set(mesh.names) if mesh else set(words[2:])
        if len(words) < 3 or words[0] not in PHASES or words[1] not in KINDS or set(words[2:]) - known:
            axes = f", an axis one of {' '.join(mesh.names)}" if mesh else ""
            problems.add(
                "bad-budget",
                key.span,
                f"`{key.text}` is no phase, collective and mesh axis",
                why=f"a phase is one of {' '.join(PHASES)}, a collective one of {' '.join(KINDS)}{axes}",
                fix=_EXAMPLE,
            )
            continue
        count, size = _budget(value, problems)
        budgets.append(Budget(" ".join(words), count, size, key.span))
    return tuple(budgets)


def _budget(node: Node, problems: Problems) -> tuple[int | None, int | None]:
    if not isinstance(node, Mapping):
        return integer(node, "how often it may run", problems, least=0, fix=_EXAMPLE), None
    found = section(node, "a budget", ("count", "bytes"), problems)
    count = integer(found["count"][1], "how often it may run", problems, least=0) if "count" in found else None
    return count, _size(found["bytes"][1], problems) if "bytes" in found else None


def _size(node: Node, problems: Problems) -> int | None:
    text = node.text if isinstance(node, Scalar) else ""
    if text.isdecimal():
        return integer(node, "a number of bytes", problems, least=0)
    match = _SIZE.fullmatch(text)
    if match is None:
        message = f"a number of bytes is expected here, not {kind_of(node)}"
        problems.add("wrong-type", node.span, message, fix="80 GiB   # or B KiB MiB TiB")
        return None
    return int(float(match.group(1)) * 1024 ** _UNITS[match.group(2)])
