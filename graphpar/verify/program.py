"""A generated program that can be run: its text, its plan, and how its constructor draws values."""

from __future__ import annotations

import ast
import json
import linecache
import types
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.errors import Diagnostic, GraphparError, Span
from graphpar.runtime.initialise import held_tensors
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Plan, PlanError, read_plan
from graphpar.runtime.shards import Place, block, cut
from graphpar.runtime.tape import Tape, read_tape

Batch = dict[str, Tensor]  # the arguments of the model, all ranks together
Values = Mapping[str, Tensor]  # parameters and buffers by name, whole


@dataclass(frozen=True)
class Program:
    """The files of one build folder that running it takes."""

    folder: Path
    text: str  # of model.py
    document: Mapping[str, Any]  # plan.json
    plan: Plan
    tape: Tape
    schedule: str = ""  # of schedule.csv, if there is a pipeline

    @property
    def file(self) -> Path:
        """The generated module."""
        return self.folder / "model.py"

    @cached_property
    def mesh(self) -> dict[str, int]:
        """The sizes of the mesh, outermost first."""
        return dict(self.plan.mesh)

    @property
    def ranks(self) -> int:
        """How many ranks it runs on."""
        count = 1
        for size in self.mesh.values():
            count *= size
        return count

    def places(self) -> list[Place]:
        """The place of every rank."""
        return [Place.of(self.mesh, rank) for rank in range(self.ranks)]

    def same_stages(self) -> list[list[int]]:
        """The ranks that run the same stages, for each place along the axis of a pipeline; else all of them."""
        planned = self.plan.pipeline
        found: dict[int, list[int]] = {}
        for rank, place in enumerate(self.places()):
            found.setdefault(place.at[planned.axis] if planned else 0, []).append(rank)
        return list(found.values())

    def model(
        self, mesh: Mesh, values: Values, dtype: torch.dtype | None, watched: ast.Module | None = None, **known: Any
    ) -> nn.Module:
        """This rank's model in evaluation mode, filled with its part of `values`.

        Floating-point tensors have `dtype`, or, with None, each the dtype of the source. `watched` is run in place of
        model.py, with the names in `known`. Raises GraphparError if the file cannot be run, and PlanError unless it
        holds what the plan says.
        """
        model: nn.Module = self._class(watched, known)(mesh)
        for name, held in held_tensors(model, self.plan).items():
            if held.is_floating_point():
                held.data = held.data.to(self.plan.stored[name].dtype if dtype is None else dtype)
        place = Place(mesh.sizes, mesh.coordinates)
        with torch.no_grad():
            for name, held in held_tensors(model, self.plan).items():
                held.copy_(cut(values[name].to(held.dtype), self.plan.stored[name].dims, place))
        return model.eval()

    def part(self, batch: Batch, mesh: Mesh) -> Batch:
        """This rank's part of a batch, on its device, in tensors of its own."""
        place = Place(mesh.sizes, mesh.coordinates)
        found: Batch = {}
        for entry in self.plan.inputs:
            x = batch[entry.name]
            for dim, axes in entry.cut.items():
                x = block(x, axes, dim, place)
            found[entry.name] = x.contiguous().clone().to(mesh.device)
        return found

    def _class(self, watched: ast.Module | None, known: Mapping[str, Any]) -> Any:
        module = types.ModuleType("model")
        module.__dict__.update(known)
        # tracebacks quote what was read, which may not be what the file says by now
        linecache.cache[str(self.file)] = (len(self.text), None, self.text.splitlines(keepends=True), str(self.file))
        try:
            exec(compile(watched or self.text, str(self.file), "exec"), module.__dict__)
        except Exception as error:
            raise GraphparError(_broken(self.file, error)) from error
        name = self.document["class"]
        if not hasattr(module, name):
            message = f"model.py has no class `{name}`, which plan.json names"
            raise GraphparError(Diagnostic("build", Span(str(self.file), 1, 1), message, kind="check"))
        return getattr(module, name)


def read_program(folder: Path) -> Program:
    """Read a build folder. Raises GraphparError when something is missing or is no build."""
    try:
        plan, tape = read_plan(folder / "plan.json"), read_tape(folder / "init.json")
        text = (folder / "model.py").read_text(encoding="utf-8")
        schedule = (folder / "schedule.csv").read_text(encoding="utf-8") if plan.pipeline else ""
    except (PlanError, OSError) as error:
        fix = "graphpar compile MODEL SPEC -o BUILD"
        message = f"{folder} is not a complete build"
        raise GraphparError(Diagnostic("build", None, message, why=(str(error),), fix=fix)) from error
    document = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    return Program(folder, text, document, plan, tape, schedule)


def one_device_mesh(program: Program) -> Mesh:
    """The mesh of a program whose axes all have size 1: no rank but this one."""

    def nobody(names: tuple[str, ...], every: list[tuple[int, ...]]) -> Any:
        raise AssertionError(f"a mesh of ones has no group along {names}, {every}")

    return Mesh(program.mesh, 0, torch.device("cpu"), nobody)


def _broken(file: Path, error: Exception) -> Diagnostic:
    line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
    why = f"{type(error).__name__}: {error}"
    return Diagnostic("build", Span(str(file), line, 1), "model.py cannot be run", why=(why,), kind="check")
