"""Verification: run a build on all its ranks in one process and compare it with the source model."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from graphpar.errors import Diagnostic, GraphparError
from graphpar.language.schema import Spec
from graphpar.runtime.initialise import held_tensors, initialise
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.simulate import simulate
from graphpar.verify import expected, reference
from graphpar.verify.batches import Batches, Size, fitting, joined
from graphpar.verify.compare import EXACT, Worst, gather, relative, scalars, size, worst
from graphpar.verify.lift import LiftedCasts
from graphpar.verify.program import Batch, Program, Values, one_device_mesh, read_program
from graphpar.verify.report import Check, Report
from graphpar.verify.source import Source, doubled, nudged, one_device, values
from graphpar.verify.steps import RATES, Parts, Step, Trained, losses, one_step, train

T = TypeVar("T")
MICROBATCHES = 2
GIB = 1 << 30


@dataclass(frozen=True)
class Options:
    """What to verify with. `memory` is the most that all tensors together may take, in bytes."""

    seed: int = 0
    rows: int = 4
    length: int = 24
    memory: int = 8 * GIB
    timeout: float = 120
    captured: bool = True  # whether to compare the one-device program with the source as well


def verify(build: Path, source: Source, spec: Spec, options: Options = Options()) -> Report:  # noqa: B008  (frozen)
    """Compare a build with its source model. Raises GraphparError only if there is nothing to compare.

    What does not agree is in the report.
    """
    start = time.monotonic()
    program = read_program(build)
    _require_memory(program, options.memory)
    length = fitting(program.plan, options.rows, options.length)
    report = Report(build, program.mesh, f"batch x seq = {length}", options.seed)
    with one_device(source, spec, program.document["source"]) as single:
        _Verification(program, single, source, options, length, report).run()
    report.seconds = time.monotonic() - start
    return report


class _Verification:
    """One build under comparison."""

    def __init__(
        self, program: Program, single: Program, source: Source, options: Options, size_: Size, report: Report
    ) -> None:
        self.program = program
        self.single = single
        self.source = source
        self.options = options
        self.size = size_
        self.report = report
        self.batches = Batches(program.plan, options.seed)
        self.places = program.places()
        self.model = nudged(source.build(options.seed), options.seed)
        self.values: Values = values(self.model)

    def run(self) -> None:
        stages = {
            "parameters": self.parameters,
            "initial values": self.initial,
            "captured program": self.captured,
            "source in float64": self.lifted,
            "one step": self.step,
            "other sizes": self.sizes,
            "training": self.training,
        }
        if not self.options.captured:
            del stages["captured program"], stages["source in float64"]
        for name, stage in stages.items():
            self.attempt(name, stage)

    def attempt(self, name: str, stage: Callable[[], None]) -> None:
        try:
            stage()
        except Exception as error:  # noqa: BLE001  (a wrong program may fail in any way; the report says how)
            self.report.add(Check(name, "failed", detail=_told(error, self.program)))

    # ---------------------------------------------------------------- the source

    def parameters(self) -> None:
        """The program holds every parameter and buffer of the source that matters, and nothing else."""
        ours = set(self.program.plan.stored)
        theirs = set(self.values)
        trainable = {name for name, p in self.model.named_parameters() if p.requires_grad}
        unknown, lost = sorted(ours - theirs), sorted(trainable - ours)
        problems = [f"not in the source: {', '.join(unknown[:4])}"] if unknown else []
        problems += [f"not in the program: {', '.join(lost[:4])}"] if lost else []
        outcome = "failed" if problems else "exact"
        self.report.add(Check("parameters", outcome, f"{len(ours)} tensors", detail="; ".join(problems)))

    def initial(self) -> None:
        """The shards that `initialise` fills are those of the source's constructor, bit for bit."""
        seed = self.options.seed + 7
        plan, tape = self.program.plan, self.program.tape

        def rank(mesh: Mesh) -> Parts:
            model = self.program.model(mesh, self.values, None)
            initialise(model, plan, tape, seed, mesh)
            return {name: held.detach() for name, held in held_tensors(model, plan).items()}

        parts = self.simulate(rank)
        wanted = values(self.source.build(seed))
        different = [
            name
            for name, stored in plan.stored.items()
            if not torch.equal(gather([p[name] for p in parts], stored, self.places).full, wanted[name])
        ]
        detail = f"other bits in {', '.join(different[:4])}" if different else ""
        self.report.add(
            Check("initial values", "failed" if different else "exact", f"{len(plan.stored)} tensors", detail=detail)
        )

    def captured(self) -> None:
        """The one-device program against the source as it is, at sizes that nothing was captured at."""
        model = self.single.model(one_device_mesh(self.single), self.values, None)
        limit = 100 * max(
            torch.finfo(s.dtype).eps for s in self.single.plan.parameters.values() if s.dtype.is_floating_point
        )
        most = self.program.plan.max_seq or self.size.length
        for size_, pattern in (
            (self.size, "uneven"),
            (Size(3, min(13, most)), "all"),
            (Size(2, min(7, most)), "tails"),
        ):
            batch = self.batches.draw(size_, pattern)
            ours = self.on_one(model, batch)
            theirs = reference.gradients(
                dict(self.model.named_parameters()), lambda b: self.source.loss(self.model, b), batch
            )
            wanted = {name: g for name, g in theirs.gradients.items() if name in self.single.plan.parameters}
            found = _larger(worst(ours.gradients, wanted), Worst(scalars([ours.loss], theirs.loss), "loss"))
            self.report.add(
                found.check(f"captured program, {size_}, {pattern} labels", "loss and gradients, source dtype", limit)
            )
        self.report.add(self.causality(model, limit))

    def causality(self, model: nn.Module, limit: float) -> Check:
        """Tokens after a label's position: the program reads them if and only if the source does."""
        pair = self.batches.probe(self.size)
        with torch.no_grad():
            theirs = [self.source.loss(self.model, batch) for batch in pair]
        ours = losses(self.single, one_device_mesh(self.single), model, pair)
        error = max(relative(a, b, size(b)) for a, b in zip(ours, theirs, strict=True))
        causal = torch.equal(theirs[0], theirs[1])
        if causal != torch.equal(ours[0], ours[1]):
            error = float("inf")
        reads = "no later token changes a loss" if causal else "the source itself looks ahead"
        return Worst(error, "").check("causality", reads, limit)

    def lifted(self) -> None:
        """The one-device program against the source's own code in float64, with its casts lifted."""
        model, batch = doubled(self.model), self.batches.draw(self.size)
        with LiftedCasts():
            theirs = reference.gradients(dict(model.named_parameters()), lambda b: self.source.loss(model, b), batch)
        ours = self.on_one(self.single_model(), batch)
        wanted = {name: g for name, g in theirs.gradients.items() if name in self.single.plan.parameters}
        found = _larger(worst(ours.gradients, wanted), Worst(scalars([ours.loss], theirs.loss), "loss"))
        self.report.add(found.check("captured program in float64", "loss and gradients, casts lifted"))

    # ---------------------------------------------------------------- the ranks

    def step(self) -> None:
        """One step of all ranks against one device: loss, gradients, norm, replicas, collectives."""
        batch = self.batches.draw(self.size)
        theirs = self.on_one(self.single_model(), batch)
        first, second = (
            self.simulate(lambda mesh: one_step(self.program, mesh, self.ranked(mesh), batch)) for _ in range(2)
        )
        report, plan = self.report, self.program.plan
        report.add(Worst(scalars([s.loss for s in first], theirs.loss), "").check("loss", f"{len(first)} ranks"))
        joined_ = {
            name: gather([s.gradients[name] for s in first], plan.parameters[name], self.places)
            for name in first[0].gradients
        }
        found = {name: g.full for name, g in joined_.items()}
        report.add(worst(found, theirs.gradients).check("gradients", f"{len(found)} parameters"))
        report.add(
            Worst(scalars([s.norm for s in first], theirs.norm), "").check("gradient norm", f"{len(first)} ranks")
        )
        report.add(
            _replicas(
                "gradient replicas",
                {n: g.unequal for n, g in joined_.items()},
                [s.loss for s in first],
                [s.norm for s in first],
            )
        )
        report.add(_padding("padding", {name: g.padding for name, g in joined_.items()}))
        report.add(_again(first, second))
        order = list(first[0].spread)
        report.add(*expected.check([s.log for s in first], self.program, self.size, torch.float64, order))
        report.add(expected.spread(self.program, first[0].spread))

    def sizes(self) -> None:
        """The loss at other sizes than that of the step: nothing is fixed to one."""
        plan = self.program.plan
        unit, ways = plan.seq_multiple, plan.ways(0)
        batches = [self.batches.draw(Size(ways, unit * 2), "all"), self.batches.draw(Size(3 * ways, unit * 3), "tails")]
        if plan.max_seq is not None and unit * 3 > plan.max_seq:
            batches = batches[:0]
        theirs = losses(self.single, one_device_mesh(self.single), self.single_model(), batches)
        ours = self.simulate(lambda mesh: losses(self.program, mesh, self.ranked(mesh), batches))
        error = max(
            (
                relative(found, wanted, size(wanted))
                for rank in ours
                for found, wanted in zip(rank, theirs, strict=True)
            ),
            default=0.0,
        )
        self.report.add(Worst(error, "").check("loss at other sizes", f"{len(batches)} sizes"))

    def training(self) -> None:
        """Three updates with clipping and two microbatches against one device in plain PyTorch with the whole batch."""
        steps = [[self.batches.draw(self.size) for _ in range(MICROBATCHES)] for _ in RATES]
        model = self.single_model()
        theirs = reference.trained(_trainable(model), lambda b: self.single_loss(model, b), [joined(s) for s in steps])
        ours = self.simulate(lambda mesh: train(self.program, mesh, self.ranked(mesh), steps))
        self.compare_training(ours, theirs)

    def compare_training(self, ours: list[Trained], theirs: Trained) -> None:
        """Parameters, both moments, losses and norms."""
        title = f"after {len(RATES)} steps"
        pairs = [
            (a, b)
            for rank in ours
            for a, b in zip((*rank.losses, *rank.norms), (*theirs.losses, *theirs.norms), strict=True)
        ]
        self.report.add(
            Worst(max(relative(a, b, size(b)) for a, b in pairs), "").check(
                f"{title}: losses and norms", f"{len(ours)} ranks"
            )
        )
        unequal: dict[str, tuple[int, ...]] = {}
        padding: dict[str, float] = {}
        groups = {"parameters": ([rank.parameters for rank in ours], theirs.parameters)}
        groups |= {key: ([rank.moments[key] for rank in ours], theirs.moments[key]) for key in theirs.moments}
        for word, (parts, wanted) in groups.items():
            whole = {n: gather([p[n] for p in parts], self.program.plan.parameters[n], self.places) for n in parts[0]}
            found = {n: g.full for n, g in whole.items()}
            self.report.add(
                worst(found, {n: wanted[n] for n in wanted if n in found or word != "parameters"}).check(
                    f"{title}: {word}", f"{len(found)} tensors"
                )
            )
            unequal |= {f"{n} ({word})": g.unequal for n, g in whole.items()}
            padding |= {f"{n} ({word})": g.padding for n, g in whole.items()}
        self.report.add(_replicas(f"{title}: replicas", unequal), _padding(f"{title}: padding", padding))

    # ---------------------------------------------------------------- running

    def simulate(self, rank: Callable[[Mesh], T]) -> list[T]:
        return simulate(self.program.mesh, rank, timeout=self.options.timeout)

    def ranked(self, mesh: Mesh) -> nn.Module:
        return self.program.model(mesh, self.values, torch.float64)

    def single_model(self) -> nn.Module:
        return self.single.model(one_device_mesh(self.single), self.values, torch.float64)

    def single_loss(self, model: nn.Module, batch: Batch) -> Tensor:
        count = {"count": model.count(**batch)} if self.single.document["count"] else {}  # pyright: ignore[reportCallIssue]
        return model(**batch, **count)

    def on_one(self, model: nn.Module, batch: Batch) -> reference.Gradients:
        return reference.gradients(_trainable(model), lambda b: self.single_loss(model, b), batch)


def _trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def _larger(a: Worst, b: Worst) -> Worst:
    return a if not a.error <= b.error else b


def _replicas(title: str, unequal: dict[str, tuple[int, ...]], *values_: list[Tensor]) -> Check:
    wrong = [f"{name} on ranks {' '.join(map(str, ranks))}" for name, ranks in unequal.items() if ranks]
    wrong += ["loss or norm" for same in values_ if any(not torch.equal(x, same[0]) for x in same)]
    return Check(title, "failed" if wrong else "exact", f"{len(unequal)} tensors", detail="; ".join(wrong[:3]))


def _padding(title: str, largest: dict[str, float]) -> Check:
    wrong = {name: value for name, value in largest.items() if value != 0}
    detail = "; ".join(f"{name} has {value:.1e} in its padding" for name, value in list(wrong.items())[:3])
    return Check(title, "failed" if wrong else "exact", f"{len(largest)} tensors are zero there", detail=detail)


def _again(first: list[Step], second: list[Step]) -> Check:
    """The same bits from the same run: nothing depends on which rank comes first."""
    same = all(
        torch.equal(a.loss, b.loss) and all(torch.equal(g, b.gradients[n]) for n, g in a.gradients.items())
        for a, b in zip(first, second, strict=True)
    )
    return Check(
        "a second run", "exact" if same else "failed", "loss and gradients", detail="" if same else "gives other bits"
    )


def _told(error: Exception, program: Program) -> str:
    """The error, with the line of model.py that it comes from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(program.file)]
    where = f"model.py:{frames[-1].lineno}: `{frames[-1].line}`: " if frames else ""
    notes = " ".join(getattr(error, "__notes__", ()))
    return f"{where}{type(error).__name__}: {error}{f' ({notes})' if notes else ''}"


def _require_memory(program: Program, most: int) -> None:
    """Raises GraphparError if the tensors of the comparison would take more than `most` bytes."""
    stored = program.plan.stored.values()
    whole = sum(_count(s.shape) for s in stored)
    parts = sum(_count(s.local_shape) for s in stored) * program.ranks
    need = 8 * 4 * (whole + parts) + 4 * 4 * whole  # float64: value, gradient, two moments; the source in its own dtype
    if need <= most:
        return
    why = (
        f"{whole:,} elements on one device and {parts:,} on {program.ranks} ranks, 32 bytes each in float64: {need / GIB:.1f} GiB",
        f"the bound is {most / GIB:.1f} GiB",
    )
    fix = f"graphpar verify {program.folder} --memory {-(-need // GIB)}\nor verify the same spec on a smaller model of the same class"
    raise GraphparError(
        Diagnostic(
            "memory", None, "this build is too large to be verified in one process", why=why, fix=fix, kind="check"
        )
    )


def _count(shape: tuple[int, ...]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total


__all__ = ["EXACT", "Options", "Report", "replace", "verify"]
