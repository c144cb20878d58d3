"""The functions of the source that a program was made of, as its author wrote them: to be read beside it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from graphpar.ir.graph import Origin


def quoted(origins: Iterable[Origin]) -> dict[str, list[dict[str, Any]]]:
    """Each function that a value comes from, with the number of its first line, by file as the plan's `lines` name it.

    Of two files with one name there is nothing: a line of the plan does not say which of them it means.
    """
    lines: dict[str, set[int]] = {}
    for origin in origins:
        if origin.file:
            lines.setdefault(origin.file, set()).add(origin.line)
    names = [Path(file).name for file in lines]
    read = {Path(file).name: list(_functions(file, lines[file])) for file in lines if names.count(Path(file).name) == 1}
    return {name: found for name, found in sorted(read.items()) if found}


def _functions(file: str, lines: set[int]) -> Iterator[dict[str, Any]]:
    """The outermost functions with one of these lines; nothing of what cannot be read, a prompt's input say."""
    try:
        text = Path(file).read_text(encoding="utf-8")
        body = ast.parse(text).body
    except (OSError, SyntaxError, ValueError):
        return
    written = text.splitlines()
    for function in _outermost(body):
        last = function.end_lineno or function.lineno
        if any(function.lineno <= line <= last for line in lines):
            yield {"first": function.lineno, "text": "\n".join(written[function.lineno - 1 : last])}


def _outermost(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    for node in body:
        match node:
            case ast.FunctionDef():
                yield node
            case ast.ClassDef() | ast.If() | ast.Try():
                yield from _outermost(node.body)
            case _:
                pass
