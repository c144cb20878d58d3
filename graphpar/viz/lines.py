"""The lines of model.py: which collective each is, where it runs, and how often."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphpar.codegen.forward import CORE, WHOLE
from graphpar.explain.places import microbatches
from graphpar.viz.picture import Exchange, Module, Picture, Row

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A statement as one module runs it: how often in a step forward, and again in the backward pass."""

    number: int
    code: str
    axes: str
    module: str
    forward: int
    again: int


class Lines:
    """The statements of a build. `of` gives the line of an entry of the plan, 0 if it has none."""

    def __init__(self, text: str, picture: Picture) -> None:
        self._tree = ast.parse(text)
        self._again = {c.name for c in self._tree.body if isinstance(c, ast.ClassDef) and _has(c, WHOLE)}
        self._cores = [m for c in ast.walk(self._tree) if isinstance(c, ast.ClassDef) if (m := _has(c, CORE))]
        self._by_entry = {id(e.entry): e.row.line for _, e in picture.exchanges()}
        for entries in _bodies(picture.plan):
            self._share(entries)
        self.every = tuple(self._walk(picture.root, microbatches(picture.plan), 0))

    def of(self, entry: Entry) -> int:
        """The line of a collective."""
        return self._by_entry.get(id(entry), 0)

    def start(self, number: int) -> int:
        """The first line of the statement that a line belongs to."""
        simple = (s for s in ast.walk(self._tree) if isinstance(s, ast.Assign | ast.Return))
        return next((s.lineno for s in simple if s.lineno <= number <= (s.end_lineno or 0)), number)

    def at(self, number: int) -> tuple[Line, ...]:
        """What the statement on a line does, in each module that runs it."""
        return tuple(line for line in self.every if line.number == self.start(number))

    def _share(self, bodies: Sequence[Sequence[Entry]]) -> None:
        """Members of a loop with other rules may have one text: what stands for the first stands for all."""
        flat = [list(_entries(body)) for body in bodies]
        known = [body for body in flat if body and all(id(entry) in self._by_entry for entry in body)]
        for body in flat:
            like = next((k for k in known if [e["op"] for e in k] == [e["op"] for e in body]), [])
            for entry, other in zip(body, like, strict=False):
                self._by_entry.setdefault(id(entry), self._by_entry[id(other)])

    def _walk(self, module: Module, times: int, again: int) -> Iterator[Line]:
        deeper = again + (module.cls in self._again)
        for item in module.items:
            match item:
                case Module():
                    yield from self._walk(item, times * item.times, deeper)
                case Exchange():
                    yield from self._lines([item.row], module, times, deeper)
                case _:
                    yield from self._lines(item.rows, module, times, deeper)

    def _lines(self, rows: Sequence[Row], module: Module, times: int, again: int) -> Iterator[Line]:
        for row in rows:
            if row.line:
                core = any(m.lineno <= row.line <= (m.end_lineno or 0) for m in self._cores)
                yield Line(row.line, row.code, row.axes, module.path, times, times * (again + core))


def _has(owner: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((m for m in owner.body if isinstance(m, ast.FunctionDef) and m.name == name), None)


def _bodies(plan: Entry) -> Iterator[Sequence[Sequence[Entry]]]:
    stages = (plan.get("pipeline") or {"stages": [plan]})["stages"]
    waiting = [entry for stage in stages for entry in stage["collectives"]]
    while waiting:
        entry = waiting.pop()
        if "loop" in entry:
            yield entry["bodies"]
            waiting += [inner for body in entry["bodies"] for inner in body]
        waiting += entry.get("again", ())


def _entries(entries: Sequence[Entry]) -> Iterator[Entry]:
    for entry in entries:
        if "loop" in entry:
            for body in entry["bodies"]:
                yield from _entries(body)
        elif "again" in entry:
            yield from _entries(entry["again"])
        else:
            yield entry
