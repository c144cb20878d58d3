"""What the modules of a program tell while it runs: every value that a statement gives, and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.routing import Routing
from graphpar.runtime.shards import Place
from graphpar.runtime.simulate import simulate
from graphpar.verify.lift import lifted
from graphpar.verify.program import Batch, Program, Values, one_device_mesh
from graphpar.verify.rows import Way, Ways, brought_home, grouped
from graphpar.verify.statements import SEE, Statement, statements, watched

Ready: TypeAlias = Callable[[Mesh, nn.Module], None]


@dataclass(frozen=True)
class Seen:
    """One value of one call of a module, and after backward its gradient."""

    path: str
    line: int
    name: str
    value: Tensor
    way: Way | None = None  # of rows by expert; the value is at home

    @property
    def gradient(self) -> Tensor | None:
        """The gradient that reached it."""
        return self.value.grad if self.value.requires_grad else None


@dataclass
class Watch:
    """What the modules of all ranks told, rank by rank in the order in which it happened."""

    statements: Mapping[int, Statement]
    owners: dict[int, tuple[int, str]] = field(default_factory=dict[int, "tuple[int, str]"])
    seen: dict[int, list[Seen]] = field(default_factory=dict[int, "list[Seen]"])
    ways: dict[int, Ways] = field(default_factory=dict[int, Ways])
    lock: Lock = field(default_factory=Lock)

    def adopt(self, model: nn.Module, rank: int) -> None:
        """Know the modules of a rank's model."""
        with self.lock:
            self.seen[rank] = []
            self.ways[rank] = Ways()
            self.owners.update({id(module): (rank, path) for path, module in model.named_modules()})

    def see(self, module: nn.Module, line: int, name: str, value: Any) -> Any:
        """Record a value; what goes on is a tensor of its own, so that its gradient is that of later uses only."""
        rank, path = self.owners[id(module)]
        statement = self.statements[line]
        text = statement.texts[statement.names.index(name)]
        if isinstance(value, Routing):
            self.ways[rank].keep(value, text)
            return value
        value = value.view_as(value)
        if value.requires_grad:
            value.retain_grad()
        self.seen[rank].append(Seen(path, line, name, value, self.ways[rank].of(text)))
        return value


def as_it_is(mesh: Mesh, model: nn.Module) -> None:
    """Leave a model in evaluation mode."""


def watch_one(single: Program, values: Values, batch: Batch, ready: Ready = as_it_is) -> list[Seen]:
    """What one device tells, of a model made ready."""
    watch = Watch(statements(single.text))
    mesh = one_device_mesh(single)
    model = single.model(mesh, values, torch.float64, watched(single.text), **{SEE: watch.see})
    ready(mesh, model)
    watch.adopt(model, 0)
    _backward(single, mesh, model, batch)
    return _at_home([watch.seen[0]], [Place({}, {})])[0]


def watch_all(program: Program, values: Values, batch: Batch, ready: Ready = as_it_is) -> list[list[Seen]]:
    """What each rank tells, of a model made ready."""
    watch, tree = Watch(statements(program.text)), watched(program.text)

    def rank(mesh: Mesh) -> None:
        model = program.model(mesh, values, torch.float64, tree, **{SEE: watch.see})
        ready(mesh, model)
        watch.adopt(model, mesh.rank)
        _backward(program, mesh, model, program.part(batch, mesh))

    simulate(program.mesh, rank)
    return _at_home([watch.seen[rank] for rank in range(program.ranks)], program.places())


def _at_home(every: list[list[Seen]], places: Sequence[Place]) -> list[list[Seen]]:
    """What all ranks told, rows by expert brought home."""
    if len({len(seen) for seen in every}) > 1:
        return every
    return [list(rank) for rank in zip(*(_one_at_home(one, places) for one in zip(*every, strict=True)), strict=True)]


def _one_at_home(one: Sequence[Seen], places: Sequence[Place]) -> Sequence[Seen]:
    """The same value of all ranks; where it lies by no routing, or not by its own, it is left where it is."""
    ways = [seen.way for seen in one if seen.way is not None]
    if len(ways) < len(one):
        return [replace(seen, way=None) for seen in one]
    groups = grouped(places, ways[0].axes)
    grads = [torch.zeros_like(s.value) if s.gradient is None else s.gradient for s in one]
    values = brought_home([seen.value.detach() for seen in one], ways, groups)
    gradients = brought_home(grads, ways, groups)
    if values is None or gradients is None:
        return [replace(seen, way=None) for seen in one]
    for seen, value, gradient in zip(one, values, gradients, strict=True):
        value.requires_grad_(seen.value.requires_grad)
        value.grad = None if seen.gradient is None else gradient
    return [replace(seen, value=value) for seen, value in zip(one, values, strict=True)]


def _backward(program: Program, mesh: Mesh, model: nn.Module, part: Batch) -> None:
    count: dict[str, Tensor] = {}
    if program.document["count"]:
        labels: Tensor = model.count(**part)  # pyright: ignore[reportCallIssue]
        count = {"count": mesh.axis(program.plan.data_axes).all_reduce(labels)}
    with lifted(program.text, model):
        model(**part, **count).backward()
