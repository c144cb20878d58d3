"""A build's schedule.csv: that it is the plan's order, leaves nothing out, and no rank waits for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from graphpar.check.interpret import Finding
from graphpar.schedules.actions import Action, Order, Step, homes, parse, spell
from graphpar.schedules.clock import Costs, Stuck, clock, incomplete
from graphpar.schedules.messages import blocked, placed, unpaired

FEW = 3  # of one kind that are told


@dataclass(frozen=True)
class _Cell:
    """One word of the file."""

    line: int
    column: int
    word: str
    step: Step


def check_schedule(text: str, plan: Mapping[str, Any]) -> list[Finding]:
    """What keeps the ranks of a build from running a schedule.csv, by its lines; nothing without a pipeline.

    Proven is: each stage is on the rank of the plan; each of its microbatches runs forward once and back once; ranks
    do this in the order of plan.json; every message has its receive, in the same order on both ranks; and no rank
    waits for one that waits for it, even if a send waits for its receive.
    """
    pipeline = plan.get("pipeline")
    if not pipeline:
        return []
    cells, found = _read(text)
    ranks = plan["mesh"][pipeline["axis"]]
    if len(cells) != ranks:
        found.append(_wrong(1, 1, f"there are {len(cells)} rows, and {pipeline['axis']} has {ranks} ranks"))
    if found:
        return found
    found += [*_elsewhere(cells, pipeline), *_another_order(cells, pipeline)]
    order = {rank: tuple(cell.step for cell in row) for rank, row in enumerate(cells)}
    missing = incomplete(order, pipeline["microbatches"])
    missing += [f"stage {s}: nothing" for s in range(len(pipeline["stages"])) if s not in homes(order)]
    found += [_wrong(1, 1, f"no whole step of {pipeline['microbatches']} microbatches: {m}") for m in missing[:FEW]]
    return found or list(_waits(order, cells))


def _read(text: str) -> tuple[list[list[_Cell]], list[Finding]]:
    cells: list[list[_Cell]] = []
    found: list[Finding] = []
    for line, row in enumerate(text.splitlines(), start=1):
        cells.append([])
        column = 1
        for word in row.split(","):
            if word.strip():
                try:
                    cells[-1].append(_Cell(line, column, word.strip(), parse(word.strip())))
                except ValueError:
                    found.append(_wrong(line, column, f"{word.strip()} is no action"))
            column += len(word) + 1
    return cells, found


def _wrong(line: int, column: int, message: str) -> Finding:
    return Finding(line, column, message, followed=True)


def _elsewhere(cells: list[list[_Cell]], pipeline: Mapping[str, Any]) -> Iterator[Finding]:
    """The first action of each stage that is on another rank than in the plan."""
    homes = {s: stage["rank"] for s, stage in enumerate(pipeline["stages"])}
    told: set[int] = set()
    for rank, row in enumerate(cells):
        for cell in row:
            for action in cell.step:
                if homes.get(action.stage) != rank and action.stage not in told:
                    told.add(action.stage)
                    where = f"is on rank {homes[action.stage]}" if action.stage in homes else "does not exist"
                    message = f"rank {rank} runs stage {action.stage}, which {where} in the plan"
                    yield _wrong(cell.line, cell.column, message)


def _another_order(cells: list[list[_Cell]], pipeline: Mapping[str, Any]) -> Iterator[Finding]:
    """The first action of each rank that is not the plan's."""
    for rank, row in enumerate(cells):
        planned = pipeline["order"].get(str(rank), [])
        for number, (cell, want) in enumerate(zip_longest(row, planned), start=1):
            have = spell(cell.step) if cell else "nothing"
            if have != want:
                at = cell or (row[-1] if row else _Cell(rank + 1, 1, "", ()))
                message = f"rank {rank} does {have} as number {number}, where plan.json has {want or 'nothing'}"
                yield _wrong(at.line, at.column, message)
                break


def _waits(order: Order, cells: list[list[_Cell]]) -> Iterator[Finding]:
    """Where ranks wait for each other: actions for what they need, and messages for their other end."""
    try:
        clock(order, Costs.even(len(homes(order))))
    except Stuck as stuck:
        at = _cell(cells, next(iter(stuck.waits.values()))[0])
        yield _wrong(at.line, at.column, f"from here on every rank waits for another: {stuck}")
        return
    rows = placed(order)
    for message in unpaired(rows)[:FEW]:
        yield _wrong(1, 1, message)
    waits = [f"rank {rank} {what}" for rank, what in blocked(rows).items()]
    if waits:
        yield _wrong(1, 1, f"ranks wait for each other: {'; '.join(waits)}")


def _cell(cells: list[list[_Cell]], action: Action) -> _Cell:
    return next(cell for row in cells for cell in row if action in cell.step)
