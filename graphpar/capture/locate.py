"""Where in the source a value was computed, and what its author called it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import torch

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)


def frame(trace: str | None) -> tuple[str, int]:
    """The innermost frame of a stack trace that is neither torch's nor ours; ('', 0) if there is none."""
    for file, line, _ in reversed(_FRAME.findall(trace or "")):
        if not file.startswith((_TORCH, _OURS)):
            return file, int(line)
    return "", 0


@cache
def assigned(file: str, line: int) -> tuple[str, ...]:
    """The names that the statement at this line assigns; empty if it assigns none."""
    best: ast.Assign | ast.AugAssign | ast.AnnAssign | None = None
    for statement in _assignments(file):
        if statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            best = statement
    if best is None:
        return ()
    targets = best.targets if isinstance(best, ast.Assign) else [best.target]
    return tuple(_names(targets[0]))


@cache
def _assignments(file: str) -> tuple[ast.Assign | ast.AugAssign | ast.AnnAssign, ...]:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return ()
    found = [n for n in ast.walk(tree) if isinstance(n, (ast.Assign, ast.AugAssign, ast.AnnAssign))]
    return tuple(sorted(found, key=lambda n: n.lineno))


def _names(target: ast.expr) -> list[str]:
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple):
        return [name for element in target.elts for name in _names(element)]
    return []
