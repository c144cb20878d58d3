"""The first value of a build that differs from the one-device program, forward and then backward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from threading import Lock

import torch
from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.shards import Dims, Place, cut, padded_shape, paste
from graphpar.runtime.simulate import simulate
from graphpar.verify.batches import Size
from graphpar.verify.compare import EXACT, relative, size
from graphpar.verify.program import Batch, Program, Values, one_device_mesh
from graphpar.verify.report import Difference
from graphpar.verify.shapes import Shape, layout
from graphpar.verify.single import Single
from graphpar.verify.statements import SEE, Statement, named_shape, parameter_line, statements, watched

FLOOR = 1e-6  # of the typical gradient: values below are rounding


@dataclass(frozen=True)
class Seen:
    """One value of one call of a module, and after backward its gradient."""

    path: str
    line: int
    name: str
    value: Tensor

    @property
    def gradient(self) -> Tensor | None:
        """The gradient that reached it."""
        return self.value.grad if self.value.requires_grad else None


@dataclass
class Watch:
    """What the modules of all ranks told, rank by rank in the order in which it happened."""

    owners: dict[int, tuple[int, str]] = field(default_factory=dict[int, "tuple[int, str]"])
    seen: dict[int, list[Seen]] = field(default_factory=dict[int, "list[Seen]"])
    lock: Lock = field(default_factory=Lock)

    def adopt(self, model: nn.Module, rank: int) -> None:
        """Know the modules of a rank's model."""
        with self.lock:
            self.seen[rank] = []
            self.owners.update({id(module): (rank, path) for path, module in model.named_modules()})

    def see(self, module: nn.Module, line: int, name: str, value: Tensor) -> Tensor:
        """Record a value; what goes on is a tensor of its own, so that its gradient is that of later uses only."""
        rank, path = self.owners[id(module)]
        value = value.view_as(value)
        if value.requires_grad:
            value.retain_grad()
        self.seen[rank].append(Seen(path, line, name, value))
        return value


def locate(program: Program, single: Single, batch: Batch, size_: Size) -> Difference | None:
    """Run both with every statement watched; None if every value and gradient agrees."""
    one = _run_one(single.program, single.values, batch)
    many = _run_all(program, single.values, batch)
    return _Search(program, single.program, one, many, size_).first()


def _run_one(single: Program, values: Values, batch: Batch) -> list[Seen]:
    watch = Watch()
    model = single.model(one_device_mesh(single), values, torch.float64, watched(single.text), **{SEE: watch.see})
    watch.adopt(model, 0)
    _backward(single, one_device_mesh(single), model, batch)
    return watch.seen[0]


def _run_all(program: Program, values: Values, batch: Batch) -> list[list[Seen]]:
    watch, tree = Watch(), watched(program.text)

    def rank(mesh: Mesh) -> None:
        model = program.model(mesh, values, torch.float64, tree, **{SEE: watch.see})
        watch.adopt(model, mesh.rank)
        _backward(program, mesh, model, program.part(batch, mesh))

    simulate(program.mesh, rank)
    return [watch.seen[rank] for rank in range(program.ranks)]


def _backward(program: Program, mesh: Mesh, model: nn.Module, part: Batch) -> None:
    count: dict[str, Tensor] = {}
    if program.document["count"]:
        labels: Tensor = model.count(**part)  # pyright: ignore[reportCallIssue, reportAssignmentType]
        count = {"count": mesh.axis(program.plan.data_axes).all_reduce(labels)}
    model(**part, **count).backward()


class _Search:
    def __init__(self, program: Program, single: Program, one: list[Seen], many: list[list[Seen]], size_: Size) -> None:
        self.program = program
        self.places = program.places()
        self.statements = statements(program.text)
        self.sizes = {n: s for n, s in program.document["dims"].items() if s is not None}
        self.sizes |= {"batch": size_.rows, "seq": size_.length}
        self.many = many
        self.wanted = _pairs(many[0], self.statements, one, statements(single.text))
        self.typical = max((size(s.gradient) for s in one if s.gradient is not None), default=0.0)

    def first(self) -> Difference | None:
        for index, seen in enumerate(self.many[0]):
            wanted = self.wanted[index]
            parts = [rank[index].value for rank in self.many]
            if found := self.compare(seen, parts, None if wanted is None else wanted.value, 0.0, ""):
                return found
        for index in reversed(range(len(self.many[0]))):
            if found := self.gradient(index):
                return found
        return None

    def gradient(self, index: int) -> Difference | None:
        wanted = self.wanted[index]
        parts = [rank[index].gradient for rank in self.many]
        if wanted is None or wanted.gradient is None or any(part is None for part in parts):
            return None
        held = [part for part in parts if part is not None]
        return self.compare(self.many[0][index], held, wanted.gradient, FLOOR * self.typical, "the gradient of ")

    def compare(
        self, seen: Seen, parts: list[Tensor], wanted: Tensor | None, floor: float, of: str
    ) -> Difference | None:
        statement = self.statements[seen.line]
        shape = statement.shapes[statement.names.index(seen.name)]
        if shape is None:
            return None
        parts = [part.detach() for part in parts]
        dims = layout(shape, parts[0].shape, self.program.mesh, self.sizes)
        if dims is None or any(part.shape != parts[0].shape for part in parts):
            return None
        readings = [shape.pending] if not of else _readings(shape, self.program.mesh)
        problems = [self.problem(parts, wanted, dims, pending, floor) for pending in readings]
        if any(problem is None for problem in problems):
            return None
        how, ranks = next(problem for problem in problems if problem is not None)
        return self.difference(seen, statement, shape, f"{of}{seen.name}", how, ranks)

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
        return Difference(f"{what} in {place}", how, ranks, statement.line, statement.code, shape.text, source)


def parameter(program: Program, model: nn.Module, name: str, how: str, ranks: tuple[int, ...]) -> Difference:
    """A parameter whose gradient or value differs although every value on the way to it agrees."""
    path = name.split(".")
    depth = next(
        n for n in reversed(range(len(path))) if type(model.get_submodule(".".join(path[:n]))).__module__ == "model"
    )
    owner = model.get_submodule(".".join(path[:depth]))
    line = parameter_line(program.text, type(owner).__name__, path[depth:])
    code = program.text.splitlines()[line - 1].strip().split("  #")[0] if line else ""
    axes = named_shape(program.text, line) if line else ""
    return Difference(f"the gradient of {name}", how, ranks, line, code, axes, None)


def _readings(shape: Shape, mesh: Mapping[str, int]) -> list[tuple[str, ...]]:
    """Over which axes a gradient may still be summed. The comment does not say; a pending value has whole gradients."""
    free = [axis for axis, n in mesh.items() if n > 1 and axis not in shape.used()]
    return [
        tuple(a for a, chosen in zip(free, pick, strict=True) if chosen) for pick in product((0, 1), repeat=len(free))
    ]


def _summed(parts: list[Tensor], places: list[Place], pending: Sequence[str]) -> list[Tensor]:
    if not pending:
        return parts
    groups: dict[tuple[int, ...], list[int]] = {}
    for rank, place in enumerate(places):
        groups.setdefault(tuple(n for axis, n in place.at.items() if axis not in pending), []).append(rank)
    found = list(parts)
    for ranks in groups.values():
        total = torch.stack([parts[rank] for rank in ranks]).sum(0)
        for rank in ranks:
            found[rank] = total
    return found


def _pairs(
    ours: list[Seen], our_text: Mapping[int, Statement], theirs: list[Seen], their_text: Mapping[int, Statement]
) -> list[Seen | None]:
    """For each of our values the one-device value it stands for: the same assignment of the same name in a module.

    A collective changes how a value lies and not what it is, so what it returns stands for what it was given.
    """
    wanted = _by_assignment(theirs, their_text)
    counts: dict[tuple[str, str], int] = {}
    for seen in ours:
        if not our_text[seen.line].is_move:
            counts[seen.path, seen.name] = counts.get((seen.path, seen.name), 0) + 1
    number: dict[tuple[str, str], int] = {}
    current: dict[tuple[str, str], Seen | None] = {}
    found: list[Seen | None] = []
    for seen in ours:
        key, statement = (seen.path, seen.name), our_text[seen.line]
        if statement.is_move and statement.moves:
            match = current.get((seen.path, statement.moves))
        elif statement.is_move:
            match = None
        else:
            number[key] = number.get(key, 0) + 1
            same = wanted.get(key, [])
            match = same[number[key] - 1] if len(same) == counts[key] else None
        current[key] = match
        found.append(match)
    return found


def _by_assignment(seen: list[Seen], text: Mapping[int, Statement]) -> dict[tuple[str, str], list[Seen]]:
    found: dict[tuple[str, str], list[Seen]] = {}
    for one in seen:
        if not text[one.line].is_move:
            found.setdefault((one.path, one.name), []).append(one)
    return found
