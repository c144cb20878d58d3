"""What a line of source does with the value of a tensor."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from graphpar.errors import Span


@dataclass(frozen=True)
class Read:
    """`branch`: it decides which code runs; `loop`: how often; `value`: it becomes a Python number. With its text."""

    kind: Literal["branch", "loop", "value"]
    text: str


def reading(span: Span) -> Read:
    """What is read at a place, from the syntax around it."""
    try:
        source = Path(span.file).read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, ValueError):
        return Read("value", "")
    for node in ast.walk(tree):
        test = _decides(node)
        if test is not None and _covers(test, span):
            return Read("loop" if isinstance(node, (ast.For, ast.comprehension)) else "branch", _text(source, test))
    return Read("value", _marked(source, span))


def _decides(node: ast.AST) -> ast.expr | None:
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test):
            return test
        case ast.For(iter=iterable) | ast.comprehension(iter=iterable):
            return iterable
        case _:
            return None


def _covers(node: ast.expr, span: Span) -> bool:
    """Whether the place lies in an expression; a truth test is placed at the expression, a call inside it."""
    first, last = node.lineno, node.end_lineno or node.lineno
    if not first <= span.line <= last:
        return False
    start, end = node.col_offset + 1, (node.end_col_offset or 0) + 1
    return first != last or (start <= span.column and span.column + span.length <= end)


def _text(source: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(source, node) or "").split())


def _marked(source: str, span: Span) -> str:
    line = source.splitlines()[span.line - 1]
    return line[span.column - 1 : span.column - 1 + span.length].strip()
