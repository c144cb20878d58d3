"""Verification: a build on all its ranks against the source model."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from torch import nn

from graphpar.errors import Diagnostic, GraphparError
from graphpar.language.schema import Spec
from graphpar.runtime.mesh import Mesh
from graphpar.verify import capture_checks, rank_checks
from graphpar.verify.batches import Batches, Pattern, Size, fitting, joined, rows_of_step
from graphpar.verify.launch import launched
from graphpar.verify.locate import locate, parameter
from graphpar.verify.locate_module import locate_module
from graphpar.verify.masks import Drawn, independent, without_masks
from graphpar.verify.origin import Origin, dropless, nudged, one_device, values
from graphpar.verify.program import Batch, Program, read_program
from graphpar.verify.ranks import Initial, Losses, Masks, OneStep, Task, Training, simulated
from graphpar.verify.report import Check, Difference, Report
from graphpar.verify.runs import microbatches
from graphpar.verify.single import Single
from graphpar.verify.steps import RATES, Dropout, Step, drop
from graphpar.verify.text import schedule, text
from graphpar.verify.watch import as_it_is

MICROBATCHES = 2
ALONE = 4  # tokens: two experts of eight are on the same of two ranks for three tokens of seven
FEW_EXPERTS = "few experts"
GIB = 1 << 30
AFTER = "no value in model.py differs, so its sum over ranks or the count of labels is wrong"
IN_STAGES = "values inside stages are not compared; `graphpar verify` of the spec without its pipeline would tell more"
AFTER_THE_MODEL = Difference("the loss", AFTER, (), None, "", "", (), None)


@dataclass(frozen=True)
class Options:
    """How to verify.

    `memory` is the most that all tensors may take, in bytes; `timeout` how long a rank waits for its peers, and how
    long all processes may take, in seconds; `launch` runs each rank in a process of its own;
    `capture` compares the one-device program with the source as well.
    """

    seed: int = 0
    rows: int = 4
    length: int = 24
    memory: int = 8 * GIB
    timeout: float = 300
    launch: bool = False
    capture: bool = True


DEFAULTS = Options()


def verify(build: Path, origin: Origin, spec: Spec, options: Options = DEFAULTS) -> Report:
    """Compare a build with the model it was made from. What does not agree is in the report.

    Raises GraphparError if there is nothing to compare: the folder is no build, or too large for the memory.
    """
    start = time.monotonic()
    program = read_program(build)
    _require_memory(program, options.memory)
    described = program.document["source"]
    whole = dropless(spec)
    with (
        one_device(origin, spec, described) as single,
        nullcontext(single) if whole == spec else one_device(origin, whole, described) as captured,
    ):
        report = _Verification(program, single, captured, origin, spec, options).run()
    report.seconds = time.monotonic() - start
    return report


class _Verification:
    """One build under comparison."""

    def __init__(
        self, program: Program, single: Program, captured: Program, origin: Origin, spec: Spec, options: Options
    ) -> None:
        self.program = program
        self.origin = origin
        self.options = options
        self.size = fitting(program.plan, options.rows, options.length)
        self.report = Report(program.folder, program.mesh, f"batch x seq = {self.size}", options.seed)
        self.batches = Batches(program.plan, options.seed)
        self.model = nudged(origin.build(options.seed), options.seed)
        self.single = Single(single, values(self.model))
        self.captured = Single(captured, values(self.model))  # with every token, as the source has it
        self.seed = options.seed + 7  # of what is drawn a second time
        self.dropout = Dropout(self.seed, spec.numerics.rng) if "self.training" in program.text else None

    def run(self) -> Report:
        self.check("text", lambda: [text(self.program)])
        self.check("schedule", lambda: schedule(self.program))
        self.check("parameters", lambda: [capture_checks.holds_everything(self.program, self.model)])
        if self.options.capture:
            self.capture()
        self.ranks()
        if not self.report.passed:
            self.locate()
        return self.report

    def capture(self) -> None:
        given = self.origin, self.model, self.captured, self.batches, self.size
        self.check("captured program", lambda: capture_checks.as_it_is(*given))
        self.check("causality", lambda: [capture_checks.causality(*given)])
        self.check("captured program in float64", lambda: [capture_checks.in_float64(*given)])

    def ranks(self) -> None:
        program, single = self.program, self.single
        batch = self.batches.draw(self.size)
        sizes = self.other_sizes()
        steps = [self.microbatches() for _ in RATES]
        tasks = [Initial(self.seed), OneStep(batch), OneStep(batch), Losses(sizes), Training(tuple(map(tuple, steps)))]
        if self.dropout:
            tasks += [
                OneStep(batch, self.dropout),
                *([] if self.dropout.rng == "exact" else [Masks(batch, self.dropout)]),
            ]
        few = [OneStep(b) for b in self.few()]
        results = self.perform([*tasks, *few])
        first, step, second, losses, trained, *dropped = results[: len(tasks)]
        self.step = lambda: (step(), single.step(batch))
        self.check(
            "initial values", lambda: [rank_checks.initial(program, first(), values(self.origin.build(self.seed)))]
        )
        self.check("one step", lambda: rank_checks.step(program, self.size, step(), single.step(batch)))
        self.check("a second run", lambda: [rank_checks.again(step(), second())])
        self.check("loss at other sizes", lambda: [rank_checks.other_sizes(losses(), single.losses(sizes))])
        if self.dropout:
            same = self.dropout.rng == "exact"
            theirs = single.step(batch, dropout=self.dropout) if same else None
            self.check("with dropout", lambda: rank_checks.dropout(program, dropped[0](), theirs))
            if not same:
                self.check("with dropout: masks", lambda: self.masks(dropped[1](), batch))
        if few:
            ours = results[len(tasks) :]
            self.check(
                FEW_EXPERTS,
                lambda: [
                    rank_checks.few(program, [(o(), single.step(t.batch)) for o, t in zip(ours, few, strict=True)])
                ],
            )
        whole = [joined(batches) for batches in steps]
        self.check("training", lambda: rank_checks.training(program, trained(), single.train(whole)))

    def microbatches(self) -> list[Batch]:
        """Fresh ones for one step."""
        if self.program.plan.pipeline:
            return microbatches(self.program, self.batches.draw(self.size))
        return [self.batches.draw(self.size) for _ in range(MICROBATCHES if self.program.plan.adds_up else 1)]

    def masks(self, ours: list[tuple[Step, list[Drawn]]], batch: Batch) -> list[Check]:
        """Where no device draws the same masks: what they drop, and where they are equal."""
        steps = [step for step, _ in ours]
        theirs = self.single.step_without_masks(batch)
        return [
            independent([drawn for _, drawn in ours], self.program.same_stages()),
            rank_checks.mean_masks(self.program, steps, theirs),
        ]

    def other_sizes(self) -> tuple[dict[str, Any], ...]:
        """Batches of the smallest size and of an odd multiple, as far as the model has positions."""
        unit, ways, most = self.program.plan.seq_multiple, self.program.plan.ways(0), self.program.plan.max_seq
        wanted: tuple[tuple[Size, Pattern], ...] = ((Size(ways, 2 * unit), "all"), (Size(3 * ways, 3 * unit), "tails"))
        return tuple(self.batches.draw(size, p) for size, p in wanted if most is None or size.length <= most)

    def few(self) -> list[Batch]:
        """If there are experts, batches with which some of them get no rows, and now and then all of a rank."""
        return [self.batches.alike(self.smallest()) for _ in range(ALONE if "route(" in self.program.text else 0)]

    def smallest(self) -> Size:
        """The fewest rows that every rank has some of, of the fewest tokens but one."""
        plan = self.program.plan
        most = 2 * plan.seq_multiple if plan.max_seq is None else min(2 * plan.seq_multiple, plan.max_seq)
        return Size(rows_of_step(plan), most // plan.seq_multiple * plan.seq_multiple)

    def perform(self, tasks: Sequence[Task]) -> list[Callable[[], list[Any]]]:
        """Run tasks on all ranks; each result raises, when it is asked for, what the task raised."""
        run = (launched if self.options.launch else simulated)(self.options.timeout)

        def result(outcome: list[Any] | Exception) -> list[Any]:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        return [lambda outcome=outcome: result(outcome) for outcome in run(self.program, self.single.values, tasks)]

    def check(self, name: str, find: Callable[[], list[Check]]) -> None:
        """Record what `find` finds, or that it could not."""
        try:
            self.report.add(*find())
        except Exception as error:  # noqa: BLE001  (a wrong program may fail in any way; the report says how)
            self.report.add(Check(name, "failed", detail=self.told(error)))

    def locate(self) -> None:
        """Name the first module that was captured wrongly; or the first value, or gradient, of the ranks."""
        try:
            if any(check.name.startswith("captured program") for check in self.report.failures):
                given = self.origin, self.model, self.captured, self.batches, self.size
                self.report.first = locate_module(*given, self.program.text)
                return
            if self.program.plan.pipeline:
                self.report.add(Check("first difference", "skipped", detail=IN_STAGES))
            else:
                self.report.first = self.located()
        except Exception as error:  # noqa: BLE001  (what failed is in the report already)
            self.report.add(Check("first difference", "skipped", detail=self.told(error)))

    def located(self) -> Difference | None:
        """The first value or gradient of the ranks that differs: without dropout, then with it if that failed."""
        batch = self.batches.draw(self.size)
        dropped = any(check.name.startswith("with dropout") for check in self.report.failures)
        for ready in (as_it_is, self.dropping) if dropped else (as_it_is,):
            if found := locate(self.program, self.single, batch, self.size, ready):
                return found
        if any(check.name == "loss" for check in self.report.failures):
            return AFTER_THE_MODEL
        wrong = rank_checks.wrong_gradients(self.program, *self.step())
        return next((parameter(self.program, self.single, *w) for w in wrong.items()), None)

    def dropping(self, mesh: Mesh, model: nn.Module) -> None:
        """Turn dropout on: with the masks of one device, or each with its mean in its place."""
        drop(mesh, model, self.dropout)
        if self.dropout and self.dropout.rng != "exact":
            without_masks(model)

    def told(self, error: Exception) -> str:
        """The error, with the line of model.py that it comes from."""
        files = {str(self.program.file), str(self.single.program.file)}
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in files]
        where = f"model.py:{frames[-1].lineno}: `{(frames[-1].line or '').split('  #')[0]}`: " if frames else ""
        notes = " ".join(getattr(error, "__notes__", ()))
        return f"{where}{type(error).__name__}: {error}{f' ({notes})' if notes else ''}"


def _require_memory(program: Program, most: int) -> None:
    """Raises GraphparError if the tensors of the comparison would take more than `most` bytes."""
    stored = program.plan.stored.values()
    whole = sum(prod(s.shape) for s in stored)
    parts = sum(prod(s.local_shape) for s in stored) * program.ranks
    need = 32 * (whole + parts) + 16 * whole  # float64: value, gradient, two moments; and the source as it is
    if need <= most:
        return
    why = (
        f"{whole:,} elements on one device and {parts:,} on {program.ranks} ranks",
        f"value, gradient and two moments in float64: {need / GIB:.1f} GiB; the bound is {most / GIB:.1f} GiB",
    )
    fix = f"graphpar verify {program.folder} --memory {-(-need // GIB)}\nor verify the spec on a smaller model"
    message = "this build is too large to be verified within the memory bound"
    raise GraphparError(Diagnostic("memory", None, message, why=why, fix=fix, kind="check"))
