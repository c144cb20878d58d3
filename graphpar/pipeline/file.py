"""Schedules in files: torch's CSV form, one row for each rank, with the computations alone.

    0F0,0F1,0B0,0B1
    1F0,1B0,1F1,1B1

A cell may be empty, as torch leaves it where a rank waits. An order says nothing of messages: they follow from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from graphpar.errors import Diagnostic, GraphparError, Note, Span, raise_if_any
from graphpar.language.check_pipeline import span_of
from graphpar.language.schema import Pipeline, Spec
from graphpar.schedules.actions import Action, Order, Step, every, homes, parse, spell
from graphpar.schedules.clock import Costs, Stuck, clock, incomplete

FEW = 8  # lines of one kind that are shown

Places = Mapping[Action, Span]


def spell_order(order: Order) -> str:
    """The file that torch reads: a row for each rank, in their order."""
    return "".join(f"{','.join(spell(step) for step in order[rank])}\n" for rank in sorted(order))


def read_order(spec: Spec, ranks: int) -> Order:
    """The order in the file that a spec names, relative to the folder of the spec.

    Raises GraphparError with everything that keeps `ranks` ranks from running it.
    """
    pipeline = spec.pipeline
    assert pipeline is not None
    path = Path(spec.path).parent / pipeline.schedule
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        message = f"cannot read the schedule {path}: {reason}"
        raise GraphparError(Diagnostic("bad-schedule", span_of(pipeline, "schedule"), message)) from error
    order, places = _parsed(text, str(path))
    raise_if_any(list(_problems(order, places, str(path), pipeline, ranks)))
    return order


def _parsed(text: str, path: str) -> tuple[Order, Places]:
    """The steps of each row, and where each action stands. Raises GraphparError with every word that is no action."""
    wrong: list[Diagnostic] = []
    order: dict[int, tuple[Step, ...]] = {}
    places: dict[Action, Span] = {}
    for rank, row in enumerate(text.splitlines()):
        steps: list[Step] = []
        column = 1
        for cell in row.split(","):
            word = cell.strip()
            span = Span(path, rank + 1, column + len(cell) - len(cell.lstrip()), max(len(word), 1))
            column += len(cell) + 1
            try:
                step = parse(word) if word else ()
            except ValueError:
                wrong.append(_unknown(word, span))
                continue
            steps += [step] if step else []
            for action in step:
                places.setdefault(action, span)
        order[rank] = tuple(steps)
    raise_if_any(wrong)
    return order, places


def _unknown(word: str, span: Span) -> Diagnostic:
    message = f"`{word}` is no action of a schedule"
    why = "an action is a stage, F, B, I or W, and a microbatch: 2F0, 2B0; or (2F0;1B3)OVERLAP_F_B"
    sends = "messages and their waits are added by graphpar: give the computations alone"
    notes = (Note(sends),) if "SEND" in word or "RECV" in word or "SHARD" in word else ()
    return Diagnostic("bad-schedule", span, message, why=(why,), notes=notes)


def _problems(order: Order, places: Places, path: str, pipeline: Pipeline, ranks: int) -> Iterator[Diagnostic]:
    whole = Span(path, 1, 1)
    if len(order) != ranks:
        why = (f"{path} has {_rows(len(order))}, one for each rank; {pipeline.axis} has {ranks}",)
        message = f"the schedule is for {len(order)} ranks, and `{pipeline.axis}` has {ranks}"
        fix = f"{pipeline.axis}: {len(order)}   # in `mesh`" if order else None
        yield Diagnostic("bad-schedule", span_of(pipeline, "schedule"), message, why=why, fix=fix)
    found = [*_two_homes(order, places), *_stage_numbers(order, pipeline, whole), *_idle(order, path)]
    if missing := incomplete(order, pipeline.microbatches):
        more = [f"and {len(missing) - FEW} more"] if len(missing) > FEW else []
        message = f"the schedule is not one step of {pipeline.microbatches} microbatches"
        rule = "every stage runs each microbatch forward once (F), and back once (B, or I and then W)"
        found.append(Diagnostic("bad-schedule", whole, message, why=(rule, *missing[:FEW], *more)))
    yield from found
    if not found:
        yield from _deadlock(order, places)


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _two_homes(order: Order, places: Places) -> Iterator[Diagnostic]:
    by_rank: dict[int, dict[int, list[Action]]] = {}
    for rank, action in every(order):
        by_rank.setdefault(action.stage, {}).setdefault(rank, []).append(action)
    for stage, actions in by_rank.items():
        home = max(actions, key=lambda rank: len(actions[rank]))
        for rank in actions:
            if rank != home:
                message = f"stage {stage} is on rank {home}, and here on rank {rank}"
                notes = (Note("it is on its own rank here", places[actions[home][0]]),)
                fix = f"move what stage {stage} does to row {home + 1}"
                yield Diagnostic("bad-schedule", places[actions[rank][0]], message, notes=notes, fix=fix)


def _stage_numbers(order: Order, pipeline: Pipeline, whole: Span) -> Iterator[Diagnostic]:
    stages = sorted(homes(order))
    gaps = sorted(set(range(max(stages, default=-1) + 1)) - set(stages))
    if gaps:
        message = f"no rank runs stage {' '.join(map(str, gaps))}, and there is a stage {stages[-1]}"
        yield Diagnostic("bad-schedule", whole, message, fix="number the stages from 0 in the order of the model")
    each = {sum(rank == r for r in homes(order).values()) for rank in order}
    if "virtual" in pipeline.spans and each != {pipeline.virtual}:
        counts = " ".join(map(str, sorted(each)))
        message = f"`virtual` says {pipeline.virtual}, and ranks in {pipeline.schedule} have {counts} stages"
        yield Diagnostic("bad-virtual", span_of(pipeline, "virtual"), message, fix="delete `virtual`")


def _idle(order: Order, path: str) -> Iterator[Diagnostic]:
    for rank, steps in order.items():
        if not steps:
            yield Diagnostic("bad-schedule", Span(path, rank + 1, 1), f"rank {rank} has no action")


def _deadlock(order: Order, places: Places) -> Iterator[Diagnostic]:
    try:
        clock(order, Costs.even(len(homes(order))))
    except Stuck as stuck:
        at = next(at for at, _ in stuck.waits.values())
        waits = [f"rank {r} waits at {a} for {_written(what, places)}" for r, (a, what) in stuck.waits.items()]
        message = "this schedule never ends: from here on every rank waits for another"
        yield Diagnostic("bad-schedule", places[at], message, why=tuple(waits))


def _written(action: Action, places: Places) -> Action:
    """The action of the file that does this one: a whole backward also makes the gradient of the inputs."""
    return action if action in places else action._replace(kind="B")
