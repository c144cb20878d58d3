"""Every collective of a step, loops folded: what runs, how often, how much it moves, and why it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from graphpar.codegen.members import as_slice
from graphpar.explain.gradients import LEAST, Sums, shared, sums_by_place
from graphpar.explain.laws import QUIET
from graphpar.explain.memory import width
from graphpar.explain.places import microbatches
from graphpar.explain.quotes import Quotes
from graphpar.explain.reasons import Chain, chain
from graphpar.explain.sends import chain_of_send, sends
from graphpar.explain.sizes import number
from graphpar.explain.sums import chain_of_shared, chain_of_sum, reason_of_sum
from graphpar.explain.traffic import Tokens

Plan = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """What runs in one phase of a step: forward, again (forward once more, in the backward pass), backward, gradients.

    `elements` are those of one time, as an expression in batch and seq; `bytes` are those of the whole step. Of the
    sums of gradients, `elements` are those of all buckets.
    """

    phase: str
    kind: str
    count: int
    elements: str
    width: int
    bytes: int


@dataclass(frozen=True)
class Loop:
    """A list of modules, and the members of it that run this; `whole` if these are all."""

    path: str
    indices: tuple[int, ...]
    whole: bool

    def __str__(self) -> str:
        many = f"{len(self.indices)} members" if len(self.indices) > 1 else "1 member"
        return f"{many} of {self.path}" if self.whole else f"{many}, {self.path}{as_slice(self.indices, None)}"


@dataclass(frozen=True)
class Collective:
    """One collective of the program text. `entry` is what plan.json says of it; it takes no part in equality.

    `readers` are the modules that read its result, `parameters` those whose gradients it sums. `rows` says of tokens on
    their way to experts that sizes are those of `all` ranks together, or `at most` them.
    """

    number: int
    op: str
    axis: str
    dtype: str
    shape: str
    module: str
    where: str | None
    place: str  # of a pipeline: its stage
    loops: tuple[Loop, ...]
    microbatches: int
    runs: tuple[Run, ...]
    reason: str
    chain: Chain
    rows: str = ""
    parameters: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of collective, each once."""
        return tuple(dict.fromkeys(run.kind for run in self.runs))

    @property
    def bytes(self) -> int:
        """What a rank hands to it in a whole step."""
        return sum(run.bytes for run in self.runs)


@dataclass(frozen=True)
class _Seen:
    """An entry of the plan where it stands: in which stage and loops, and how often it is run again."""

    entry: Mapping[str, Any]
    place: str
    loops: tuple[Loop, ...] = ()
    again: int = 0


def collectives(plan: Plan, size: Tokens, quotes: Quotes) -> tuple[Collective, ...]:
    """The collectives of a plan in forward order, then the sums of gradients, with numbers from 1."""
    every = [_of(seen, plan, size, quotes) for seen in _seen(plan)]
    every += [_sum("gradients", found, plan, quotes) for found in sums_by_place(plan)]
    every += [_sum("shared", found, plan, quotes) for found in shared(plan)]
    return tuple(replace(one, number=at) for at, one in enumerate(every, 1))


def _seen(plan: Plan) -> Iterator[_Seen]:
    pipeline = plan.get("pipeline")
    if not pipeline:
        yield from _walk(plan["collectives"], _Seen({}, ""))
        return
    for s, stage in enumerate(pipeline["stages"]):
        place = f"stage {s}, {pipeline['axis']} {stage['rank']}"
        yield from _walk(stage["collectives"], _Seen({}, place), (pipeline["layers"], stage["layers"][0]))
        yield from (_Seen(entry, place) for entry in sends(pipeline, s))


def _walk(entries: Iterable[Mapping[str, Any]], at: _Seen, part: tuple[str, int] = ("", 0)) -> Iterator[_Seen]:
    """Everything below `at`; of the list of modules in `part`, a stage has the members from an index on."""
    for entry in entries:
        if "loop" in entry:
            first = part[1] if entry["loop"] == part[0] else None
            for kind in dict.fromkeys(entry["kinds"]):
                loop = _loop(entry, kind, first)
                yield from _walk(entry["bodies"][kind], replace(at, loops=(*at.loops, loop)), part)
        elif "again" in entry:
            yield from _walk(entry["again"], replace(at, again=at.again + 1), part)
        else:
            yield replace(at, entry=entry)


def _loop(entry: Mapping[str, Any], kind: int, first: int | None) -> Loop:
    indices = tuple(i for i, k in enumerate(entry["kinds"], first or 0) if k == kind)
    return Loop(entry["loop"], indices, first is None and len(indices) == len(entry["kinds"]))


def _of(seen: _Seen, plan: Plan, size: Tokens, quotes: Quotes) -> Collective:
    entry = seen.entry
    pipeline = plan.get("pipeline")
    found = (
        chain_of_send(entry, quotes.pipeline(pipeline["rule"]))
        if pipeline and entry["op"] == "send"
        else chain(entry["op"], entry["axis"], entry["causes"], quotes, back=bool(entry["backward"]) or _flows(entry))
    )
    return Collective(
        number=0,
        op=entry["op"],
        axis=entry["axis"],
        dtype=entry["dtype"],
        shape=entry["shape"],
        module=entry["module"],
        where=entry["where"],
        place=seen.place,
        loops=seen.loops,
        microbatches=microbatches(plan),
        runs=tuple(_runs(seen, plan, size)),
        reason=entry["reason"],
        chain=found,
        rows=entry.get("routed", ""),
        readers=tuple(entry.get("readers", ())),
        entry=entry,
    )


def _flows(entry: Mapping[str, Any]) -> bool:
    """Whether what sends nothing backward may have a gradient."""
    return entry["dtype"].startswith(("float", "bfloat")) and entry["op"] in QUIET


def _runs(seen: _Seen, plan: Plan, size: Tokens) -> Iterator[Run]:
    entry, step = seen.entry, microbatches(plan)
    times = step * prod(len(loop.indices) for loop in seen.loops)
    for phase, direction, often in (
        ("forward", "forward", 1),
        ("again", "forward", seen.again),
        ("backward",) * 2 + (1,),
    ):
        if entry[direction] and often:
            elements, wide = entry[f"{direction}_elements"], width(entry["dtype"])
            moved = number(elements, size.batch // step, size.seq) * wide * times * often
            yield Run(phase, entry[direction], times * often, elements, wide, moved)


def _sum(op: str, found: Sums, plan: Plan, quotes: Quotes) -> Collective:
    axis = " ".join(found.axes)
    made = (chain_of_shared if op == "shared" else chain_of_sum)(found, plan, quotes)
    wide = max(width(plan["parameters"][found.names[0]]["dtype"]), LEAST)
    run = Run("gradients", "all_reduce", found.count, str(found.bytes // wide), wide, found.bytes)
    names = tuple(dict.fromkeys(plan["parameters"][name]["family"] for name in found.names))
    return Collective(
        number=0,
        op=op,
        axis=axis,
        dtype=plan["parameters"][found.names[0]]["dtype"],
        shape="",
        module="",
        where=next((step.where for step in made.steps if step.where), None),
        place=found.place,
        loops=(),
        microbatches=microbatches(plan),
        runs=(run,),
        reason=reason_of_sum(op, found, plan),
        chain=made,
        parameters=names,
    )
