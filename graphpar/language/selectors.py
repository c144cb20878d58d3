"""Selectors: which parts of a model a region or a `names` entry speaks of.

    mlp                      every module whose path ends in `mlp`, with all that lies below it
    attn.c_proj, lm_head     either of the two
    /transformer.ln_f        the path from the root, not any path that ends so
    h.*.mlp, w?              `*` and `?` stand for any characters within one part
    layers[0:4].attn         children of a module list, counted as in Python; `layers[-1]` is the last
    input:NAME  output:NAME  an input or an output of the model
    line:model.py:57         what that source line computes
    op:sdpa  op:sdpa@attn    every op of a kind; every one at or below `attn`

`layers` stands for the model's list of repeated blocks, whatever its own name is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

from graphpar.errors import Diagnostic, GraphparError, Span, did_you_mean, raise_if_any

KINDS = ("input:", "output:", "line:", "op:")

Lists = Mapping[str, int]  # path of a module list -> number of its children
Aliases = Mapping[str, str]  # word of the selector language -> path of a module


@dataclass(frozen=True)
class Pick:
    """`[start]` or, for a range, `[start:stop]`."""

    start: int | None
    stop: int | None = None
    ranged: bool = False

    def takes(self, index: int, length: int | None) -> bool:
        """Whether child `index` of a list is meant. Counting from the end needs the list's length."""
        if not self.ranged:
            start = self.start or 0
            return index == (start if start >= 0 or length is None else start + length)
        if length is not None:
            return index in range(*slice(self.start, self.stop).indices(length))
        low, high = self.start or 0, self.stop
        return low >= 0 and low <= index and (high is None or index < high)

    def fits(self, length: int) -> bool:
        """Whether every child that is spelled out exists and at least one is taken."""
        if not self.ranged:
            return -length <= (self.start or 0) < length
        within = all(bound is None or -length <= bound <= length for bound in (self.start, self.stop))
        return within and len(range(*slice(self.start, self.stop).indices(length))) > 0

    def __str__(self) -> str:
        def bound(value: int | None) -> str:
            return "" if value is None else str(value)

        return f"[{bound(self.start)}:{bound(self.stop)}]" if self.ranged else f"[{self.start}]"


Step = str | Pick  # a name pattern, or a choice among the children of a list


@dataclass(frozen=True)
class Selector:
    """One alternative of a selector text. `steps` are those of the module path (of the part after `@` for an op)."""

    kind: Literal["module", "input", "output", "line", "op"]
    text: str
    steps: tuple[Step, ...] = ()
    anchored: bool = False
    name: str = ""  # of the input, output or op; the file of a line
    line: int = 0
    span: Span = field(default=Span("", 0, 0), compare=False)

    def __str__(self) -> str:
        return self.text


def parse_selectors(text: str, span: Span) -> tuple[Selector, ...]:
    """The alternatives of a comma-separated text whose first character stands at `span`.

    Raises GraphparError with every alternative that cannot be read.
    """
    found: list[Selector] = []
    problems: list[Diagnostic] = []
    offset = 0
    for piece in text.split(","):
        word = piece.strip()
        start = offset + len(piece) - len(piece.lstrip())
        try:
            found.append(_parse_one(word, span.within(start, len(word))))
        except GraphparError as error:
            problems += error.diagnostics
        offset += len(piece) + 1
    raise_if_any(problems)
    return tuple(found)


def matches(
    selector: Selector,
    path: str,
    *,
    op: str | None = None,
    line: tuple[str, int] | None = None,
    lists: Lists | None = None,
    aliases: Aliases | None = None,
) -> bool:
    """Whether an op in module `path` is taken in: the module, or one above it, is selected.

    `op` is the kind of the op and `line` the file and line it comes from; `path` is `input:NAME` for a graph input.
    """
    if selector.kind in ("input", "output"):
        return path == f"{selector.kind}:{selector.name}"
    if selector.kind == "line":
        return line is not None and line[1] == selector.line and _same_file(line[0], selector.name)
    if selector.kind == "op" and (op is None or not fnmatchcase(op, selector.name)):
        return False
    return not selector.steps or bool(_ends(selector, path, lists or {}, aliases or {}))


def selects(selector: Selector, path: str, *, lists: Lists | None = None, aliases: Aliases | None = None) -> bool:
    """Whether exactly this module, or this parameter, is selected; one below it does not count."""
    return selector.kind == "module" and len(path.split(".")) in _ends(selector, path, lists or {}, aliases or {})


def _ends(selector: Selector, path: str, lists: Lists, aliases: Aliases) -> set[int]:
    """After how many parts of `path` a match of the whole selector ends."""
    parts = path.split(".") if path else []
    starts = (0,) if selector.anchored else range(len(parts))
    ends = {end for start in starts if (end := _walk(selector.steps, parts, start, lists)) is not None}
    first = selector.steps[0] if selector.steps else None
    if isinstance(first, str) and first in aliases:
        list_parts = aliases[first].split(".")
        if parts[: len(list_parts)] == list_parts:
            end = _walk(selector.steps[1:], parts, len(list_parts), lists)
            ends |= {end} if end is not None else set()
    return ends


def _walk(steps: Sequence[Step], parts: Sequence[str], start: int, lists: Lists) -> int | None:
    if start + len(steps) > len(parts):
        return None
    for position, step in enumerate(steps, start):
        part = parts[position]
        if isinstance(step, str):
            if not fnmatchcase(part, step):
                return None
        elif not part.isdecimal() or not step.takes(int(part), lists.get(".".join(parts[:position]))):
            return None
    return start + len(steps)


def _same_file(path: str, wanted: str) -> bool:
    return path == wanted or path.endswith(f"/{wanted}")


_PART = re.compile(r"(?P<name>[\w?*-]+)(?P<pick>\[.*\])?")
_PICK = re.compile(r"\[(?P<start>-?\d+)?(?P<colon>:)?(?P<stop>-?\d+)?\]")


def _parse_one(text: str, span: Span) -> Selector:
    prefix, colon, rest = text.partition(":")
    if not text:
        raise _wrong(span, "a selector is missing here", why="commas separate selectors, and one of them is empty")
    if not colon or "[" in prefix:
        anchored = text.startswith("/")
        return Selector(
            "module", text, _parse_path(text[anchored:], span.within(anchored, len(text))), anchored, span=span
        )
    if prefix == "op":
        return _parse_op(text, rest, span)
    if prefix == "line":
        file, _, number = rest.rpartition(":")
        if not file or not number.isdecimal():
            raise _wrong(span, f"`{text}` does not name a line", fix="line:model.py:57")
        return Selector("line", text, name=file, line=int(number), span=span)
    if prefix in ("input", "output"):
        if not re.fullmatch(r"\w+", rest):
            raise _wrong(span, f"`{text}` does not name an {prefix}", fix=f"{prefix}:NAME")
        return Selector(prefix, text, name=rest, span=span)
    message = f"`{prefix}:` begins no kind of selector{did_you_mean(f'{prefix}:', KINDS)}"
    raise _wrong(
        span.within(0, len(prefix)),
        message,
        why="known kinds: input: output: line: op:, and a module path without any of them",
    )


def _parse_op(text: str, rest: str, span: Span) -> Selector:
    name, at, where = rest.partition("@")
    if not re.fullmatch(r"[\w.:?*]+", name):
        raise _wrong(span, f"`{text}` does not name an op", fix="op:sdpa, or op:sdpa@attn")
    offset = len(text) - len(where)
    anchored = where.startswith("/")
    steps = _parse_path(where[anchored:], span.within(offset + anchored, len(where))) if at else ()
    return Selector("op", text, steps, anchored, name=name, span=span)


def _parse_path(text: str, span: Span) -> tuple[Step, ...]:
    steps: list[Step] = []
    offset = 0
    for part in text.split("."):
        here = span.within(offset, len(part))
        match = _PART.fullmatch(part)
        if "**" in part:
            raise _wrong(
                here,
                "`**` is not needed",
                why="a selector matches at the end of a path: `mlp` is every mlp at any depth",
            )
        if match is None:
            raise _wrong(
                here, f"`{part}` is no part of a module path" if part else "a part of the path is missing here"
            )
        steps.append(match["name"])
        steps += _parse_pick(match["pick"], here) if match["pick"] else []
        offset += len(part) + 1
    return tuple(steps)


def _parse_pick(text: str, span: Span) -> list[Step]:
    if text == "[*]":
        return [Pick(None, None, ranged=True)]
    match = _PICK.fullmatch(text)
    if match is None or text == "[]":
        raise _wrong(
            span, f"`{text}` is no index", why="an index counts children as in Python: [0], [-1], [0:4], [4:], [*]"
        )
    start, stop = (int(match[side]) if match[side] else None for side in ("start", "stop"))
    return [Pick(start, stop, ranged=match["colon"] is not None)]


def _wrong(span: Span, message: str, *, why: str = "", fix: str | None = None) -> GraphparError:
    return GraphparError(Diagnostic("bad-selector", span, message, why=(why,) if why else (), fix=fix))
