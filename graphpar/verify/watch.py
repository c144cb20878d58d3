"""What the modules of a program tell while it runs: every value that a statement gives, and its gradient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.simulate import simulate
from graphpar.verify.lift import lifted
from graphpar.verify.program import Batch, Program, Values, one_device_mesh
from graphpar.verify.statements import SEE, watched

Ready: TypeAlias = Callable[[Mesh, nn.Module], None]


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

    def see(self, module: nn.Module, line: int, name: str, value: Any) -> Any:
        """Record a value; what goes on is a tensor of its own, so that its gradient is that of later uses only."""
        if not isinstance(value, Tensor):  # a routing
            return value
        rank, path = self.owners[id(module)]
        value = value.view_as(value)
        if value.requires_grad:
            value.retain_grad()
        self.seen[rank].append(Seen(path, line, name, value))
        return value


def as_it_is(mesh: Mesh, model: nn.Module) -> None:
    """Leave a model in evaluation mode."""


def watch_one(single: Program, values: Values, batch: Batch, ready: Ready = as_it_is) -> list[Seen]:
    """What one device tells, of a model made ready."""
    watch = Watch()
    mesh = one_device_mesh(single)
    model = single.model(mesh, values, torch.float64, watched(single.text), **{SEE: watch.see})
    ready(mesh, model)
    watch.adopt(model, 0)
    _backward(single, mesh, model, batch)
    return watch.seen[0]


def watch_all(program: Program, values: Values, batch: Batch, ready: Ready = as_it_is) -> list[list[Seen]]:
    """What each rank tells, of a model made ready."""
    watch, tree = Watch(), watched(program.text)

    def rank(mesh: Mesh) -> None:
        model = program.model(mesh, values, torch.float64, tree, **{SEE: watch.see})
        ready(mesh, model)
        watch.adopt(model, mesh.rank)
        _backward(program, mesh, model, program.part(batch, mesh))

    simulate(program.mesh, rank)
    return [watch.seen[rank] for rank in range(program.ranks)]


def _backward(program: Program, mesh: Mesh, model: nn.Module, part: Batch) -> None:
    count: dict[str, Tensor] = {}
    if program.document["count"]:
        labels: Tensor = model.count(**part)  # pyright: ignore[reportCallIssue]
        count = {"count": mesh.axis(program.plan.data_axes).all_reduce(labels)}
    with lifted(program.text, model):
        model(**part, **count).backward()
