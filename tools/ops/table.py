"""All cases."""

from __future__ import annotations

from graphpar.ops.rules import RULES
from graphpar.ops.shapes import SHAPES
from tools.ops import choices, letters, sized
from tools.ops.case import Case

LEFT_OUT = letters.LEFT_OUT
CASES: tuple[Case, ...] = (*letters.CASES, *choices.CASES, *sized.CASES)


def ops() -> list[str]:
    """The ops that have a rule, in the order of the table."""
    return [*RULES, *SHAPES]


def of(op: str) -> list[Case]:
    """The cases of an op."""
    return [case for case in CASES if case.op == op]
