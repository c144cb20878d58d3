"""The answer of `graphpar explain`: what was asked for, with the lines of model.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from graphpar.errors import GraphparError
from graphpar.explain.asked import Found, Op, asked, not_found, op_at
from graphpar.explain.collectives import Collective
from graphpar.explain.explained import Explained
from graphpar.explain.listed import APART, listed, of_ops, of_parameters
from graphpar.explain.spoken import of_collective, of_op, of_parameter
from graphpar.explain.tables import Table, print_tables, width
from graphpar.viz.lines import Line, Lines
from graphpar.viz.walk import draw

FEW = 3  # things that are told in full; more are listed


@dataclass(frozen=True)
class Answer:
    """What was found in a build. `lines` are those of model.py by the number of their collective."""

    known: Explained
    found: Found
    lines: Mapping[int, int]
    statements: Mapping[int, tuple[Line, ...]]
    every: bool
    note: str

    def to_json(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "size": asdict(self.known.size),
            "collectives": [_json(one, self.lines.get(one.number, 0)) for one in self.found.collectives],
            "parameters": [{**asdict(p), "bytes": p.bytes, "whole_bytes": p.whole} for p in self.found.parameters],
            "ops": [{**asdict(op), "runs": self._runs(op)} for op in self.found.ops],
        }

    def show(self, build: str, _: str) -> None:
        """Print it."""
        if self.every:
            closing = [APART, f"graphpar explain {build} 1   # why the first is there, and what would remove it"]
            print_tables([], [listed(self.found.collectives, self.known)], [*self._notes(), *closing])
            return
        blocks = list(self._blocks())
        lines = [line for at, block in enumerate(blocks) for line in [*([""] if at else []), *block]]
        closing = [*self._notes(), *self._more(build)]
        print_tables(lines, self._tables(), closing)

    def _blocks(self) -> Iterator[list[str]]:
        wide, size = width(), self.known.size
        if len(self.found.collectives) <= FEW:
            for one in self.found.collectives:
                yield list(of_collective(one, self.lines.get(one.number, 0), size, wide))
        if len(self.found.parameters) <= FEW:
            for one in self.found.parameters:
                yield list(of_parameter(one, self.known.collectives, wide))
        if len(self.found.ops) <= FEW:
            for op in self.found.ops:
                yield list(of_op(op, self._runs(op), wide))

    def _runs(self, op: Op) -> list[dict[str, Any]]:
        return [asdict(line) for line in dict.fromkeys(self.statements.get(op.line, ()))]

    def _tables(self) -> list[Table]:
        found = self.found
        many = [listed(found.collectives, self.known)] if len(found.collectives) > FEW else []
        many += [of_parameters(found.parameters)] if len(found.parameters) > FEW else []
        return many + ([of_ops([(op, self._runs(op)) for op in found.ops])] if len(found.ops) > FEW else [])

    def _more(self, build: str) -> Iterator[str]:
        if len(self.found.collectives) > FEW:
            yield f"graphpar explain {build} {self.found.collectives[0].number}   # tells all about one"
        if len(self.found.parameters) > FEW:
            yield f"graphpar explain {build} {self.found.parameters[0].name}   # tells all about one"
        if len(self.found.ops) > FEW:
            yield f"graphpar explain {build} model.py:{self.found.ops[0].line}   # tells all about one"

    def _notes(self) -> list[str]:
        return [self.note] if self.note else []


def answer(known: Explained, text: str, build: Path, where: str | None) -> Answer:
    """What `where` stands for in a build whose model.py has `text`; all collectives, if it is not given.

    Raises GraphparError if it stands for nothing.
    """
    lines, note = _lines(text, known)
    numbers = {c.number: lines.of(c.entry) for c in known.collectives} if lines else {}
    if where is None:
        return Answer(known, Found(known.collectives), numbers, {}, True, note)
    found = asked(where, known)
    if found.line and lines:
        found = _on_line(found, lines.start(found.line), lines, numbers, known)
    own = set(numbers.values())
    found = replace(found, ops=tuple(op for op in found.ops if op.line not in own))
    if not found:
        raise GraphparError(not_found(where, known, build))
    statements = {op.line: lines.at(op.line) for op in found.ops} if lines else {}
    return Answer(known, found, numbers, statements, False, note)


def _json(one: Collective, line: int) -> dict[str, Any]:
    values = asdict(replace(one, entry={}))
    del values["entry"]
    return {**values, "line": line or None, "bytes": one.bytes, "complete": one.chain.complete}


def _lines(text: str, known: Explained) -> tuple[Lines | None, str]:
    try:
        return Lines(text, draw(text, known.plan)), ""
    except (GraphparError, SyntaxError):
        return None, "note: model.py is not the text of plan.json any more, so that its lines are not told"


def _on_line(found: Found, start: int, lines: Lines, numbers: Mapping[int, int], known: Explained) -> Found:
    """With what stands on a line of model.py."""
    here = tuple(c for c in known.collectives if numbers.get(c.number) == start and c not in found.collectives)
    ops = (op_at(start, known),) if lines.at(start) and not here else ()
    return replace(found, collectives=(*found.collectives, *here), ops=(*found.ops, *ops))
