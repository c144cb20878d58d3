"""What WHERE means: a number, a kind of collective, a line, a parameter, a module or an op."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from graphpar.errors import Diagnostic, GraphparError, did_you_mean
from graphpar.explain.collectives import Collective
from graphpar.explain.explained import Explained
from graphpar.explain.parameters import Parameter
from graphpar.explain.reasons import Step, step

_LINE = re.compile(r"(?P<file>[^:]*):(?P<line>\d+)")


@dataclass(frozen=True)
class Op:
    """A statement of model.py: the line, the place in the source that it comes from, and why it is cut."""

    module: str
    where: str
    line: int
    cut: tuple[Step, ...]


@dataclass(frozen=True)
class Found:
    """What was asked for. `line` is a line of model.py, if that is what it may mean."""

    collectives: tuple[Collective, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    ops: tuple[Op, ...] = ()
    line: int = 0

    def __bool__(self) -> bool:
        return bool(self.collectives or self.parameters or self.ops)


def asked(where: str, known: Explained) -> Found:
    """What a word stands for in a build; nothing if it stands for nothing."""
    if where.isdigit():
        return Found(tuple(c for c in known.collectives if c.number == int(where)))
    if line := _LINE.fullmatch(where):
        return _at(line["file"].rpartition("/")[2], int(line["line"]), known)
    if kinds := tuple(c for c in known.collectives if _is_kind(c, where)):
        return Found(kinds)
    if not _is_member(where, known):
        return Found()
    if found := tuple(p for p in known.parameters if any(ends(n, where) for n in (p.name, *p.members, *p.aliases))):
        return Found(parameters=found)
    near = tuple(c for c in known.collectives if _concerns(c, where))
    held = tuple(p for p in known.parameters if any(_below(name, where) for name in (p.name, *p.members)))
    return Found(near, held, tuple(_ops(known, lambda module, _: _below(module, where))))


def not_found(where: str, known: Explained, build: Path) -> Diagnostic:
    """Nothing has that name: the names that are near, and how to see all."""
    modules = dict.fromkeys(c.module for c in known.collectives if c.module)
    names = [
        *(p.name for p in known.parameters),
        *modules,
        *dict.fromkeys(k for c in known.collectives for k in c.kinds),
    ]
    numbers = (f"collectives have the numbers 1 to {len(known.collectives)}",) if where.isdigit() else ()
    near = did_you_mean(where, names)
    why = (*numbers, *((near,) if near else ()))
    return Diagnostic("nothing-there", None, f"`{where}` is nothing in {build}", why, fix=f"graphpar explain {build}")


def require_one_question(where: str | None, build: Path, other: Path) -> None:
    """Raise GraphparError if a place is asked about where two builds are compared."""
    if where is not None:
        message = f"`{where}` asks about one build, and --diff compares two"
        raise GraphparError(Diagnostic("two-questions", None, message, fix=f"graphpar explain {build} --diff {other}"))


def ends(path: str, word: str) -> bool:
    """Whether a path is `word`, or ends in it; a number stands for a star."""
    parts, wanted = path.split("."), word.split(".")
    return len(wanted) <= len(parts) and all(map(_alike, parts[-len(wanted) :], wanted))


def _alike(part: str, word: str) -> bool:
    return part == word or (part.startswith("*") and (word == "*" or word.isdigit()))


def _is_member(where: str, known: Explained) -> bool:
    """Whether the members of lists that a path names by their numbers are there."""
    parts = where.split(".")
    last = max((at for at, part in enumerate(parts, 1) if part.isdigit()), default=0)
    prefix = ".".join(parts[:last])
    return not prefix or any(_below(member, prefix) for p in known.parameters for member in p.members)


def _at(file: str, line: int, known: Explained) -> Found:
    """What stands on a line of the source, or of model.py: a file of the source may have that name as well."""
    where = f"{file}:{line}"
    of_source = tuple(c for c in known.collectives if where in {c.where, *(step.where for step in c.chain.steps)})
    ops = tuple(_ops(known, lambda _, place: place == where))
    return Found(of_source, ops=ops, line=line if file in ("model.py", "") else 0)


def _is_kind(one: Collective, where: str) -> bool:
    kind, _, axis = where.partition("/")
    return kind in (*one.kinds, one.op) and axis in ("", one.axis, *one.axis.split())


def _concerns(one: Collective, where: str) -> bool:
    """Whether a collective is in a module, or has its reasons there, or is of an op of that name."""
    modules = [one.module, *one.readers, *(step.module for step in one.chain.steps)] if not one.parameters else []
    return any(_runs(one, where, module) for module in modules)


def _runs(one: Collective, where: str, module: str) -> bool:
    """Whether `where` is a module around, and the members that it names are among those that run this."""
    indices = {index for loop in one.loops for index in loop.indices}
    numbers = {int(word) for word in where.split(".") if word.isdigit()}
    return _below(module, where) and (not indices or numbers <= indices)


def _below(module: str, where: str) -> bool:
    parts = module.split(".")
    return any(ends(".".join(parts[: i + 1]), where) for i in range(len(parts))) if module else False


def _ops(known: Explained, wanted: Callable[[str, str], bool]) -> Iterator[Op]:
    for number, line in known.plan["lines"].items():
        if wanted(line["module"], line["where"]):
            yield op_at(int(number), known)


def op_at(number: int, known: Explained) -> Op:
    """What plan.json says of a line of model.py as it was written."""
    line = known.plan["lines"].get(str(number), {"module": "", "where": ""})
    causes = line.get("causes", ())
    cut = tuple(step(cause, cause["op"], causes, known.quotes) for cause in causes)
    return Op(line["module"], line["where"], number, cut)
