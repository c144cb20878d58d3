"""Lines with their comments in columns."""

from __future__ import annotations

from collections.abc import Sequence

from graphpar.codegen.program import Line

CODE = 76  # where the shapes begin, unless a line is longer
LONGEST = 112  # a longer line is broken
SHAPE = 34  # the width of the shapes, unless one is longer


def broken(lines: Sequence[Line]) -> list[Line]:
    """The lines of the text that `columns` makes: what is too long for one line is on three."""
    return [part for line in lines for part in _broken(line)]


def columns(lines: Sequence[Line]) -> list[str]:
    """The lines as text: code, then the shape, then the reason."""
    lines = broken(lines)
    code = ["    " * line.indent + line.code for line in lines]
    commented = [len(c) for c, line in zip(code, lines, strict=True) if line.shape and len(c) <= CODE]
    start = max(commented, default=0) + 2
    return [_one(c, line, start) for c, line in zip(code, lines, strict=True)]


def _one(code: str, line: Line, start: int) -> str:
    if not line.shape and not line.reason:
        return code
    comment = f"# {line.shape:<{SHAPE}}  {line.reason}".rstrip() if line.reason else f"# {line.shape}"
    return f"{code:<{start - 2}}  {comment}"


def _broken(line: Line) -> list[Line]:
    """A call that is too long for one line, with its arguments on a line of their own."""
    start = _opening(line.code)
    if len(line.code) + 4 * line.indent <= LONGEST or not _has_arguments(line.code, start) or " for " in line.code:
        return [line]
    inner = f"{line.code[start + 1 : -1]},"
    return [
        Line(line.code[: start + 1], indent=line.indent, origin=line.origin, causes=line.causes),
        Line(inner, indent=line.indent + 1),
        Line(")", line.shape, line.reason, line.indent),
    ]


def _has_arguments(code: str, start: int) -> bool:
    """Whether the bracket that opens at `start` and closes with the code is that of a call with arguments."""
    called = start > 0 and (code[start - 1].isidentifier() or code[start - 1] in ")]0123456789")
    return called and code[start] == "(" and start < len(code) - 2


def _opening(code: str) -> int:
    """Where the bracket opens that the last character closes."""
    depth = 0
    for at in range(len(code) - 1, -1, -1):
        depth += (code[at] in ")]}") - (code[at] in "([{")
        if depth == 0:
            return at
    return 0
