"""Diagnostics: where a mistake is, the arithmetic that shows it, and the text that mends it.

Whatever a person can get wrong is reported as a `Diagnostic`. Nothing is printed where it is found: a phase collects
all its diagnostics, raises them in one `GraphparError`, and `render` gives each its one textual form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Kind = Literal["spec", "model", "check"]
SourceLookup = Callable[[str], str | None]

EXIT_CODES: dict[Kind, int] = {"spec": 2, "model": 3, "check": 1}
FULL_LIST = 15  # a list of known words is shown whole up to this length
NEAR = 2  # edit distance up to which a known word is offered instead of an unknown one


@dataclass(frozen=True)
class Span:
    """A place in a source file. Line and column count from 1; length is in characters on that line."""

    file: str
    line: int
    column: int
    length: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"

    def within(self, offset: int, length: int) -> Span:
        """The part of this span that begins `offset` characters in."""
        return replace(self, column=self.column + offset, length=max(length, 1))


@dataclass(frozen=True)
class Note:
    """Another place, or another fact, that takes part in a diagnostic."""

    text: str
    span: Span | None = None


@dataclass(frozen=True)
class Diagnostic:
    """One mistake.

    `code` is a short stable word; `message` one sentence; `why` the numbers behind it, one line each; `fix` text that
    can be pasted (it may have several lines). `kind` says whose mistake it is and so decides the exit code. A warning
    never concerns a result, only what it costs.
    """

    code: str
    span: Span | None
    message: str
    why: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    fix: str | None = None
    kind: Kind = "spec"
    severity: Literal["error", "warning"] = "error"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.kind]


class GraphparError(Exception):
    """Everything that one phase found wrong. `exit_code` follows the earliest phase concerned: spec, model, check."""

    def __init__(self, diagnostics: Diagnostic | Iterable[Diagnostic]) -> None:
        self.diagnostics = (diagnostics,) if isinstance(diagnostics, Diagnostic) else tuple(diagnostics)
        if not self.diagnostics:
            raise ValueError("a GraphparError needs at least one diagnostic")
        super().__init__("\n".join(_headline(d) for d in self.diagnostics))

    @property
    def exit_code(self) -> int:
        kinds = {d.kind for d in self.diagnostics}
        return next(code for kind, code in EXIT_CODES.items() if kind in kinds)


def raise_if_any(diagnostics: Sequence[Diagnostic]) -> None:
    """Raise one `GraphparError`, in file order, if there is anything to report."""
    if diagnostics:
        raise GraphparError(sorted(diagnostics, key=_position))


def read_source(file: str) -> str | None:
    """The text of a source file, or None where there is no such file: the usual lookup of `render`."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def render(diagnostic: Diagnostic, source_text_lookup: SourceLookup = read_source) -> str:
    """The full text of a diagnostic: headline, quoted line with a caret, why, notes and fix."""
    lines = [_headline(diagnostic)]
    if diagnostic.span is not None:
        lines += _quote(diagnostic.span, source_text_lookup)
    lines += _labelled("why", "\n".join(diagnostic.why))
    for note in diagnostic.notes:
        lines += _labelled("note", f"{note.span}: {note.text}" if note.span else note.text)
    lines += _labelled("fix", diagnostic.fix or "")
    return "\n".join(lines)


def render_all(error: GraphparError, source_text_lookup: SourceLookup = read_source) -> str:
    """Every diagnostic of an error, with an empty line between two."""
    return "\n\n".join(render(d, source_text_lookup) for d in error.diagnostics)


def to_json(diagnostic: Diagnostic) -> dict[str, object]:
    """The fields of a diagnostic as JSON values, under the names they have here."""
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "kind": diagnostic.kind,
        "span": _span_json(diagnostic.span),
        "message": diagnostic.message,
        "why": list(diagnostic.why),
        "notes": [{"text": note.text, "span": _span_json(note.span)} for note in diagnostic.notes],
        "fix": diagnostic.fix,
    }


def suggestions(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known words nearest to an unknown one: all at the smallest edit distance, if that is at most 2.

    A word is never replaced whole, so one of two letters has neighbours at distance 1 only.
    """
    distances = {candidate: _edit_distance(word.lower(), candidate.lower()) for candidate in known}
    limit = min(NEAR, len(word) - 1)
    best = min(distances.values(), default=limit + 1)
    return tuple(c for c, d in distances.items() if d == best) if best <= limit else ()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` to end a message with, or nothing if no known word is near."""
    near = suggestions(word, known)
    return f"; did you mean {any_of(near)}?" if near else ""


def any_of(words: Sequence[str]) -> str:
    """Words in backticks as a choice: `a`, `b` or `c`."""
    quoted = [f"`{word}`" for word in words]
    return " or ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def listing(words: Sequence[str], what: str) -> str:
    """A whole list if it is short, and otherwise how long it is."""
    if not words:
        return f"there are no {what}"
    return f"{what}: {' '.join(words)}" if len(words) <= FULL_LIST else f"{what}: {len(words)}, too many to list here"


def _headline(diagnostic: Diagnostic) -> str:
    place = f"{diagnostic.span}: " if diagnostic.span else ""
    return f"{place}{diagnostic.severity}[{diagnostic.code}]: {diagnostic.message}"


def _position(diagnostic: Diagnostic) -> tuple[str, int, int]:
    span = diagnostic.span
    return (span.file, span.line, span.column) if span else ("", 0, 0)


def _quote(span: Span, source_text_lookup: SourceLookup) -> list[str]:
    source = source_text_lookup(span.file)
    lines = source.splitlines() if source is not None else []
    if not 1 <= span.line <= len(lines):
        return []
    line = lines[span.line - 1]
    before = "".join("\t" if char == "\t" else " " for char in line[: span.column - 1].ljust(span.column - 1))
    carets = "^" * max(1, min(span.length, len(line) - span.column + 1))
    number = f"{span.line:>5}"
    return [f"{number} | {line}".rstrip(), f"{' ' * len(number)} | {before}{carets}"]


def _labelled(label: str, text: str) -> list[str]:
    if not text:
        return []
    first, *rest = text.splitlines()
    indent = " " * (4 + len(label) + 2)
    return [f"    {label}: {first}", *(f"{indent}{line}".rstrip() for line in rest)]


def _span_json(span: Span | None) -> dict[str, object] | None:
    if span is None:
        return None
    return {"file": span.file, "line": span.line, "column": span.column, "length": span.length}


def _edit_distance(a: str, b: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b`."""
    before_last: list[int] = []
    last = list(range(len(b) + 1))
    for i, char_a in enumerate(a, start=1):
        row = [i]
        for j, char_b in enumerate(b, start=1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (char_a != char_b))
            if i > 1 and j > 1 and char_a == b[j - 2] and a[i - 2] == char_b:
                cost = min(cost, before_last[j - 2] + 1)
            row.append(cost)
        before_last, last = last, row
    return last[-1]
