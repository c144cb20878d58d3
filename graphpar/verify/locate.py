"""The first value of a build that differs from the one-device program, forward and then backward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product

import torch
from torch import Tensor

from graphpar.check.check import examine
from graphpar.runtime.shards import Dims, Place, cut, padded_shape, paste
from graphpar.runtime.simulate import simulate
from graphpar.verify.batches import Size
from graphpar.verify.compare import EXACT, relative, size
from graphpar.verify.flow import Flow
from graphpar.verify.pairs import pairs
from graphpar.verify.program import Batch, Program
from graphpar.verify.report import Difference
from graphpar.verify.rows import grouped
from graphpar.verify.shapes import Shape, layout
from graphpar.verify.single import Single
from graphpar.verify.statements import RETURNED, Statement, named_shape, parameter_line, statements
from graphpar.verify.watch import Ready, Seen, as_it_is, watch_all, watch_one

FLOOR = 1e-6  # of the typical gradient: values below are rounding


def locate(program: Program, single: Single, batch: Batch, size_: Size, ready: Ready = as_it_is) -> Difference | None:
    """Run both, made ready, with every statement watched; None if every value and gradient agrees."""
    one = watch_one(single.program, single.values, batch, ready)
    many = watch_all(program, single.values, batch, ready)
    return _Search(program, single.program, one, many, size_).first()


class _Search:
    def __init__(self, program: Program, single: Program, one: list[Seen], many: list[list[Seen]], size_: Size) -> None:
        self.program = program
        self.places = program.places()
        self.statements = statements(program.text)
        self.sizes = {n: s for n, s in program.document["dims"].items() if s is not None}
        self.sizes |= {"batch": size_.rows, "seq": size_.length}
        self.many = many
        self.flow = Flow(many[0], self.statements)
        self.wanted = pairs(many[0], self.statements, one, statements(single.text))
        self.summands = _summands(program)
        self.typical = max((size(s.gradient) for s in one if s.gradient is not None), default=0.0)

    def first(self) -> Difference | None:
        count = len(self.many[0])
        return self.search(range(count), self.value, self.flow.makers) or self.search(
            reversed(range(count)), self.gradient, self.flow.readers
        )

    def search(
        self,
        order: Iterable[int],
        compare: Callable[[int], Difference | bool],
        neighbours: Callable[[int], Iterable[int]],
    ) -> Difference | None:
        """The first that differs, with the lines between it and what agrees."""
        agreed: set[int] = set()
        for index in order:
            found = compare(index)
            if isinstance(found, Difference):
                suspects, stack = {index}, [index]
                while stack:
                    new = [n for n in neighbours(stack.pop()) if n not in agreed | suspects]
                    suspects.update(new)
                    stack += new
                if neighbours == self.flow.readers:  # a gradient is made by those who read the value
                    suspects = {n for s in suspects for n in self.flow.readers(s)}
                lines = {self.many[0][n].line for n in suspects}
                return replace(found, lines=tuple(sorted(lines)))
            if found:
                agreed.add(index)
        return None

    def value(self, index: int) -> Difference | bool:
        """What differs, or whether there was anything to agree with."""
        wanted = self.wanted[index]
        parts = [rank[index].value for rank in self.many]
        return self.compare(self.many[0][index], parts, None if wanted is None else wanted.value, 0.0, "")

    def gradient(self, index: int) -> Difference | bool:
        wanted, seen = self.wanted[index], self.many[0][index]
        if wanted is None or wanted.gradient is None or self.is_one_of_several(index):
            return False
        held = [rank[index].gradient for rank in self.many]
        if missing := tuple(r for r, part in enumerate(held) if part is None):
            statement, of = self.statements[seen.line], f"the gradient of {seen.name}"
            shape = self.shape(seen)
            reached = size(wanted.gradient) > FLOOR * self.typical
            return (
                self.difference(seen, statement, shape, of, "does not arrive", missing) if shape and reached else False
            )
        parts = [part for part in held if part is not None]
        return self.compare(seen, parts, wanted.gradient, FLOOR * self.typical, "the gradient of ")

    def is_one_of_several(self, index: int) -> bool:
        """Whether others read what a collective was given: what it gives has a part of the gradient on one device."""
        statement = self.statements[self.many[0][index].line]
        if not statement.is_move or statement.moves is None:
            return False
        givers = [n for n in self.flow.makers(index) if self.many[0][n].name == statement.moves]
        return any(self.flow.readers(n) != [index] or self.is_one_of_several(n) for n in givers)

    def compare(
        self, seen: Seen, parts: list[Tensor], wanted: Tensor | None, floor: float, of: str
    ) -> Difference | bool:
        statement, shape = self.statements[seen.line], self.shape(seen)
        if shape is None:
            return False
        parts = [part.detach() for part in parts]
        dims = layout(shape, parts[0].shape, self.program.mesh, self.sizes)
        if dims is None or any(part.shape != parts[0].shape for part in parts):
            return False
        zeros = seen.way.among_zeros if seen.way else ()
        readings = [(*r, *zeros) for r in self.readings(seen, shape)] if of else [shape.pending]
        problems = [self.problem(parts, wanted, dims, pending, floor) for pending in readings]
        if any(problem is None for problem in problems):
            # a gradient that agrees only after a sum may be one that somebody forgot to take
            return wanted is not None and problems[0] is None
        how, ranks = next(problem for problem in problems if problem is not None)
        return self.difference(seen, statement, shape, f"{of}{seen.name}", how, ranks)

    def shape(self, seen: Seen) -> Shape | None:
        """How a value lies: as its comment says; rows by expert as they do at home."""
        statement = self.statements[seen.line]
        return seen.way.shape if seen.way else statement.shapes[statement.names.index(seen.name)]

    def readings(self, seen: Seen, shape: Shape) -> list[tuple[str, ...]]:
        """Over which axes the gradient of a value may still be summed: one answer, if the text is proven."""
        if self.summands is None:
            return _readings(shape, self.program.mesh)
        known = self.summands.get((seen.line, seen.name.removeprefix(RETURNED).strip()))
        if known is None:
            return _readings(shape, self.program.mesh)
        cut = {axis for axes in shape.cuts.values() for axis in axes}  # by what an expanded parameter has met, say
        return [tuple(axis for axis in known if axis not in cut)]

    def problem(
        self, parts: list[Tensor], wanted: Tensor | None, dims: Dims, pending: Sequence[str], floor: float
    ) -> tuple[str, tuple[int, ...]] | None:
        """What is wrong with parts that lie as `dims` say, after the sum over `pending`."""
        summed = _summed(parts, self.places, pending)
        full = parts[0].new_zeros(padded_shape(dims))
        for place, part in zip(self.places, summed, strict=True):
            paste(full, part, dims, place)
        unequal = [r for r, place in enumerate(self.places) if not torch.equal(summed[r], cut(full, dims, place))]
        if wanted is not None and wanted.dim() == full.dim():
            inside = tuple(slice(n) for n in wanted.shape)
            error = relative(full[inside], wanted, max(size(wanted), floor))
            if not error <= EXACT and full[inside].shape == wanted.shape:
                return f"differs by {error:.1e} of the largest element", self.wrong(summed, wanted, dims, floor)
        scale = max(size(full), floor)
        apart = max((relative(summed[r], cut(full, dims, self.places[r]), scale) for r in unequal), default=0.0)
        if not apart <= EXACT:
            return f"is not the same on ranks that hold the same part ({apart:.1e} apart)", tuple(unequal)
        return None

    def wrong(self, parts: list[Tensor], wanted: Tensor, dims: Dims, floor: float) -> tuple[int, ...]:
        scale = max(size(wanted), floor)
        theirs = [cut(wanted, dims, place) for place in self.places]
        return tuple(r for r, part in enumerate(parts) if not relative(part, theirs[r], scale) <= EXACT)

    def difference(
        self, seen: Seen, statement: Statement, shape: Shape, what: str, how: str, ranks: tuple[int, ...]
    ) -> Difference:
        where = self.program.document.get("lines", {}).get(str(statement.line), {})
        source = where.get("where") if isinstance(where, dict) else where
        place = seen.path or "the model"
        return Difference(f"{what} in {place}", how, ranks, statement.line, statement.code, shape.text, (), source)


def parameter(program: Program, single: Single, name: str, error: float) -> Difference:
    """A parameter whose gradient differs although every value on the way to it agrees."""
    model = simulate(program.mesh, lambda mesh: program.model(mesh, single.values, torch.float64))[0]
    path = name.split(".")
    depth = next(
        n for n in reversed(range(len(path))) if type(model.get_submodule(".".join(path[:n]))).__module__ == "model"
    )
    owner = model.get_submodule(".".join(path[:depth]))
    line = parameter_line(program.text, type(owner).__name__, path[depth:])
    code = program.text.splitlines()[line - 1].strip().split("  #")[0] if line else ""
    axes = named_shape(program.text, line) if line else ""
    how = f"differs by {error:.1e} of the largest element"
    return Difference(f"the gradient of {name}", how, (), line, code, axes, (line,) if line else (), None)


def _summands(program: Program) -> Mapping[tuple[int, str], tuple[str, ...]] | None:
    """By line and name, the axes along which the gradient of a value is a summand; None if the text is not proven."""
    examined = examine(program.text, program.document)
    if examined.findings:
        return None
    return {key: tuple(sorted(value.replicated)) for key, value in examined.values.items()}


def _readings(shape: Shape, mesh: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Over which axes a gradient may still be summed. The comment does not say; a pending value has whole gradients."""
    free = [axis for axis, n in mesh.items() if n > 1 and axis not in shape.used()]
    return [
        tuple(a for a, chosen in zip(free, pick, strict=True) if chosen) for pick in product((0, 1), repeat=len(free))
    ]


def _summed(parts: list[Tensor], places: list[Place], pending: Sequence[str]) -> list[Tensor]:
    if not pending:
        return parts
    found = list(parts)
    for ranks in grouped(places, pending):
        total = torch.stack([parts[rank] for rank in ranks]).sum(0)
        for rank in ranks:
            found[rank] = total
    return found
