"""Explanations in lines for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphpar.explain.asked import Op
from graphpar.explain.collectives import Collective, Run
from graphpar.explain.memory import spell
from graphpar.explain.parameters import Parameter
from graphpar.explain.reasons import Step, Without
from graphpar.explain.sizes import formula
from graphpar.explain.traffic import Tokens
from graphpar.pipeline.describe import number as number_of

LABEL = 13  # the width of what stands before a text
PHASES = {
    "forward": "forward",
    "again": "again, in backward",
    "backward": "backward",
    "gradients": "after the last backward",
}
ROWS = {
    "all": "rows go where the router sends them: the bytes are those of an even spread",
    "at most": "rows go where the router sends them: the bytes are the most that the capacity lets through",
}
OTHERS = "another rule may cut the same ops then: compile it, and `graphpar explain BUILD --diff OTHER` tells"


def of_collective(one: Collective, line: int, size: Tokens, width: int) -> Iterator[str]:
    """Everything about one collective; `line` is that of model.py, 0 if it has none."""
    made = f"{one.number}  {' and '.join(one.kinds)} over {one.axis}: {one.reason}"
    yield from _wrapped(made, "", 3, width)
    yield ""
    yield from _labelled("source", [_source(one)], width)
    yield from _labelled("model.py", [f"line {line}"] if line else [], width)
    yield from _labelled("value", [f"{one.shape}, {one.dtype}"] if one.shape else [], width)
    yield from _labelled("read by", [", ".join(one.readers)] if one.readers else [], width)
    yield from _labelled("gradients of", one.parameters, width)
    yield from _labelled("how often", [_often(one, run) for run in one.runs], width)
    yield from _labelled("bytes", [*(_bytes(one, run) for run in one.runs), *_rows(one, size)], width)
    yield from _labelled("because", _because(one), width)
    yield from _without(one.chain.without, width)


def of_parameter(one: Parameter, every: Sequence[Collective], width: int) -> Iterator[str]:
    """Everything about one parameter or buffer."""
    many = f"{len(one.members)} {one.kind}s" if len(one.members) > 1 else f"a {one.kind}"
    yield from _wrapped(f"{one.name}: {many}, {one.axes or 'a scalar'}", "", 3, width)
    yield ""
    yield from _labelled("also", one.aliases, width)
    yield from _labelled(
        "on a rank", [f"{_shape(one.local_shape)} of {_shape(one.shape)}, {one.dtype}: {_held(one)}"], width
    )
    yield from _labelled("stages", [", ".join(map(str, one.stages))] if one.stages else [], width)
    cut = [line for step in one.cut for line in _step(step)] or ["no rule cuts it: each rank has all of it"]
    yield from _labelled("cut", cut, width)
    yield from _labelled("gradient", list(_gradient(one)), width)
    yield from _labelled("collectives", _numbered(one, every), width)
    yield from _without(one.without, width)


def of_op(one: Op, runs: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """A statement that sends nothing by itself; `runs` say in which modules it runs, and how often."""
    code = runs[0]["code"] if runs else ""
    yield from _wrapped(f"model.py:{one.line}  {code}", "", 3, width)
    yield ""
    yield from _labelled("source", [f"{one.module or 'the model itself'}, {one.where}"] if one.where else [], width)
    yield from _labelled("value", [runs[0]["axes"]] if runs and runs[0]["axes"] else [], width)
    yield from _labelled("how often", [_runs(run) for run in runs], width)
    yield from _labelled("bytes", ["it sends nothing by itself"], width)
    cut = [line for step in one.cut for line in _step(step)]
    yield from _labelled("because", cut or ["no rule cuts it: each rank does all of what it is given"], width)


def _runs(run: Mapping[str, Any]) -> str:
    again = f", and {run['again']} more in backward, to be computed again" if run["again"] else ""
    where = run["module"] or "the model itself"
    return f"{where}: {number_of(run['forward'], 'time')} in a step forward{again}"


def _source(one: Collective) -> str:
    where = [one.module or ("" if one.parameters else "the model itself"), one.where or "", one.place]
    return ", ".join(filter(None, where))


def _often(one: Collective, run: Run) -> str:
    text = f"{PHASES[run.phase]}: {run.kind} {number_of(run.count, 'time')} in a step"
    if run.phase == "gradients":
        return f"{text}, however many microbatches it has"
    factors = [*map(str, one.loops), *([f"{one.microbatches} microbatches"] if one.microbatches > 1 else [])]
    return f"{text} ({' × '.join(factors)})" if factors else text


def _bytes(one: Collective, run: Run) -> str:
    whole = f"{spell(run.bytes)} in a step from each rank{' of the stage' if one.place else ''}"
    if run.phase == "gradients":
        return f"{PHASES[run.phase]}: {int(run.elements):,} elements × {run.width} B = {whole}"
    return (
        f"{PHASES[run.phase]}: {formula(run.elements)} × {run.width} B = {spell(run.bytes / run.count)} each, {whole}"
    )


def _rows(one: Collective, size: Tokens) -> list[str]:
    if one.parameters:
        return []
    sizes = f"for batch {size.batch}, seq {size.seq}, {size.why}"
    each = " (batch in the formula is that of a microbatch)" if one.microbatches > 1 else ""
    return [*([ROWS[one.rows]] if one.rows else []), f"{sizes}{each}"]


def _because(one: Collective) -> list[str]:
    lines = [line for step in one.chain.steps for line in _step(step)]
    lines += [f"so forward: {one.chain.forward}"] if one.chain.forward else []
    return [*lines, f"{'so' if one.parameters else 'and'} backward: {one.chain.backward}"]


def _step(step: Step) -> list[str]:
    found = [step.text]
    found += [f"\t{step.where}"] if step.where else []
    if step.rule:
        also = f"   (line {step.rule.line} of {step.rule.file})" if step.rule.build_line else ""
        found.append(f"\t{step.rule.place}   {step.rule.quoted or step.rule.text}{also}")
    return found


def _gradient(one: Parameter) -> Iterator[str]:
    if not one.trainable:
        yield "it is not trained" if one.kind == "parameter" else "it has none"
        return
    if not one.grad_sum:
        yield "complete on each rank that has it: no sum is taken"
        return
    yield f"summed over {' '.join(one.grad_sum)}, once in a step"
    for step in one.summed:
        yield from _step(step)


def _held(one: Parameter) -> str:
    each = " each" if len(one.members) > 1 else ""
    return (
        f"{spell(one.bytes)}{each}" if one.bytes == one.whole else f"{spell(one.bytes)}{each}, {spell(one.whole)} whole"
    )


def _numbered(one: Parameter, every: Sequence[Collective]) -> list[str]:
    chosen = [c for c in every if c.number in one.collectives]
    return [f"{c.number}  {' and '.join(c.kinds)} over {c.axis}: {c.reason}" for c in chosen]


def _without(found: Sequence[Without], width: int) -> Iterator[str]:
    if found:
        yield from _labelled("without", [f"{w.what}: {w.then}" for w in found], width)
        yield from _labelled("", [OTHERS], width)


def _shape(sizes: Iterable[Any]) -> str:
    return " × ".join(map(str, sizes)) or "scalar"


def _labelled(label: str, texts: Sequence[str], width: int) -> Iterator[str]:
    """Texts below each other behind a word; a text that begins with a tab is further in."""
    for at, text in enumerate(texts):
        inner = 4 if text.startswith("\t") else 0
        head = f"   {label if at == 0 else '':{LABEL}}{' ' * inner}"
        yield from _wrapped(text.strip(), head, len(head) + 2, width)


def _wrapped(text: str, head: str, hanging: int, width: int) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=head,
        subsequent_indent=" " * hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
