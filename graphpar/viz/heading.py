"""What stands above a picture: the model, the mesh, the layout, and what a rank stores and sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from graphpar.explain.memory import memory, sharded, spell
from graphpar.explain.places import microbatches
from graphpar.explain.traffic import Tokens, Traffic, tokens, traffic


@dataclass(frozen=True)
class Heading:
    """The facts of a build that a picture is read with."""

    model: str
    source: str
    mesh: tuple[tuple[str, int], ...]
    ranks: int
    layout: tuple[tuple[str, tuple[str, ...]], ...]  # each rule: its text, and the mesh axes it names
    facts: tuple[str, ...]
    size: Tokens
    each: Tokens  # of one microbatch: what a collective of a pipeline runs on
    gradients: tuple[Traffic, ...]  # sums after the last backward


def heading(plan: Mapping[str, Any], given: Mapping[str, int]) -> Heading:
    """The facts of a plan. `given` may have `batch` and `seq`, the sizes of a step that bytes are told for."""
    mesh = tuple((axis, int(ranks)) for axis, ranks in plan["mesh"].items())
    size, times = tokens(plan, given), microbatches(plan)
    every = traffic(plan, size)
    stored, cut = memory(plan), sharded(plan)
    held = f"{spell(stored.parameters)} of {spell(stored.whole)} on each rank"
    return Heading(
        model=plan["class"],
        source=f"{plan['source']['model']} by {plan['source']['spec_file']}",
        mesh=mesh,
        ranks=prod(ranks for _, ranks in mesh),
        layout=tuple((rule, tuple(a for a, _ in mesh if a in rule.partition(":")[2])) for rule in plan["layout"]),
        facts=(
            f"{cut.parameters} of {cut.of} parameters are cut: {held}",
            _sent(every),
            f"sizes: batch {size.batch}{f' in {times} microbatches' if times > 1 else ''}, seq {size.seq}, {size.why}",
        ),
        size=size,
        each=replace(size, batch=size.batch // times),
        gradients=tuple(t for t in every if t.phase == "gradients"),
    )


def _sent(every: tuple[Traffic, ...]) -> str:
    count, sent = sum(t.count for t in every), sum(t.bytes for t in every)
    return f"{count} collectives in a step, {spell(sent)} from each rank"
