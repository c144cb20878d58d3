"""What every rank is asked to do, and doing it in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from graphpar.runtime.initialise import held_tensors, initialise
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.simulate import simulate
from graphpar.verify.masks import Drawn, without_masks
from graphpar.verify.program import Batch, Program, Values
from graphpar.verify.steps import Dropout, Parts, drop, losses, one_step, train


@dataclass(frozen=True)
class Initial:
    """Fill the shards with the constructor's values for a seed. Gives parts by name."""

    seed: int


@dataclass(frozen=True)
class OneStep:
    """Forward, backward and sums. Gives a `Step`."""

    batch: Batch
    dropout: Dropout | None = None


@dataclass(frozen=True)
class Losses:
    """The loss of each batch, in float64."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True)
class Training:
    """Updates, one for each list of microbatches. Gives a `Trained`."""

    steps: tuple[tuple[Batch, ...], ...]


@dataclass(frozen=True)
class Masks:
    """A step in training mode with the mean of each mask in its place. Gives a `Step`, and what was drawn."""

    batch: Batch
    dropout: Dropout


Task: TypeAlias = "Initial | OneStep | Losses | Training | Masks"
Outcome: TypeAlias = "list[Any] | Exception"  # what each rank gives, or why there is nothing
Runner: TypeAlias = Callable[[Program, Values, Sequence[Task]], "list[Outcome]"]


def perform(task: Task, program: Program, mesh: Mesh, values: Values) -> Any:
    """Do one task on one rank, with a model of its own."""
    match task:
        case Initial(seed):
            return _initial(program, mesh, values, seed)
        case OneStep(batch, dropout):
            model = program.model(mesh, values, torch.float64)
            drop(mesh, model, dropout)
            return one_step(program, mesh, model, batch, dropout)
        case Losses(batches):
            return losses(program, mesh, program.model(mesh, values, torch.float64), batches)
        case Training(steps):
            return train(program, mesh, program.model(mesh, values, torch.float64), steps)
        case Masks(batch, dropout):
            model = program.model(mesh, values, torch.float64)
            drop(mesh, model, dropout)
            drawn: list[Drawn] = []
            without_masks(model, drawn)
            return one_step(program, mesh, model, batch, dropout), drawn


def simulated(timeout: float) -> Runner:
    """One thread for each rank; a task that fails leaves the others alone."""

    def run(program: Program, values: Values, tasks: Sequence[Task]) -> list[Outcome]:
        return [_simulate(program, values, task, timeout) for task in tasks]

    return run


def _simulate(program: Program, values: Values, task: Task, timeout: float) -> Outcome:
    try:
        return simulate(program.mesh, lambda mesh: perform(task, program, mesh, values), timeout=timeout)
    except Exception as error:  # noqa: BLE001  (a wrong program may fail in any way; the report says how)
        return error


def _initial(program: Program, mesh: Mesh, values: Values, seed: int) -> Parts:
    model = program.model(mesh, values, None)
    initialise(model, program.plan, program.tape, seed, mesh)
    return {name: held.detach() for name, held in held_tensors(model, program.plan).items()}
