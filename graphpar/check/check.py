"""A build's text against its plan: that ranks together compute one device's values and gradients, in step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from graphpar.check.declared import place, spell_axes
from graphpar.check.dims import Dim, Factor, Wrong, dimension
from graphpar.check.in_order import in_order
from graphpar.check.interpret import Finding, Interpreter
from graphpar.check.mesh import Mesh
from graphpar.check.program import read
from graphpar.check.rules import Trace
from graphpar.check.stages import Part, in_stages, sent_as_planned
from graphpar.check.value import Value

BATCH, SEQ = 1009, 10007  # primes, which no dimension of a model equals by chance


@dataclass(frozen=True)
class Examined:
    """What a text says by itself: what is wrong or not followed, and each value that it assigns, by line and name."""

    findings: list[Finding]
    values: Mapping[tuple[int, str], Value]


def check_program(text: str, plan: Mapping[str, Any]) -> list[Finding]:
    """What is wrong with `model.py` as a program for the mesh of the plan, or cannot be followed; nothing if proven.

    Proven is, along every mesh axis: each value is the same on all ranks, or cut as its consumer takes it, or summed
    before anything but a sum needs it; so is each gradient; every parameter lies as the plan loads it, and its gradient
    is summed where it is a summand; and all ranks run the same collectives in one order, those of the plan.
    """
    return examine(text, plan).findings


def examine(text: str, plan: Mapping[str, Any]) -> Examined:
    """Run the program of a text on values that are dimensions and states alone."""
    try:
        read_ = read(text)
    except SyntaxError as error:
        wrong = Finding(error.lineno or 1, error.offset or 1, f"this is no Python: {error.msg}", followed=True)
        return Examined([wrong], {})
    trace = Trace()
    interpreter = Interpreter(read_, trace)
    return Examined(_findings(interpreter, trace, plan), interpreter.values)


def _findings(interpreter: Interpreter, trace: Trace, plan: Mapping[str, Any]) -> list[Finding]:
    mesh = Mesh(plan["mesh"], trace)
    cls, data = plan["class"], frozenset(mesh.live(tuple(plan["data_axes"])))
    pipeline = plan.get("pipeline")
    methods = ["__init__", *([] if pipeline else ["forward"]), *(["count"] if plan["count"] else [])]
    if missing := [m for m in methods if m not in interpreter.text.classes.get(cls, {})]:
        return [Finding(1, 1, f"there is no class {cls} with {' and '.join(missing)}", followed=True)]
    model = interpreter.build(cls, mesh)
    if interpreter.findings:
        return interpreter.findings
    parts, findings = in_stages(interpreter, model, plan) if pipeline else ([Part.whole(model, plan)], [])
    findings += interpreter.findings
    interpreter.findings.clear()
    for part in parts:
        findings += place(part.module, part.holds, mesh)
    if findings:
        return findings
    inputs = {entry["name"]: _input(entry, plan, mesh) for entry in plan["inputs"]}
    given = {**inputs, **({"count": Value(())} if plan["count"] else {})}
    size = partial(interpreter.number, sizes=_sizes(plan, mesh))
    findings += _sum("loss", interpreter, parts, "forward", given, data, size)
    if not interpreter.findings and not findings:
        findings += in_order(trace.found, plan)
    if plan["count"]:
        findings += _sum("count", interpreter, [Part(model, tuple(inputs))], "count", inputs, data, size)
    return [*interpreter.findings, *findings]


def _input(entry: Mapping[str, Any], plan: Mapping[str, Any], mesh: Mesh) -> Value:
    sizes = _sizes(plan, mesh)
    dims: list[Dim] = []
    for i, word in enumerate(entry["axes"].split()):
        axes = mesh.live(tuple(entry["cut"].get(str(i), ())))
        size = sizes[word.partition("@")[0]]
        cut = prod(mesh.sizes[a] for a in axes)
        dims.append(dimension([[Factor(size // cut, axes)]]))
    return Value(tuple(dims))


def _sizes(plan: Mapping[str, Any], mesh: Mesh) -> dict[str, int]:
    """The sizes of all ranks together."""
    return {"batch": BATCH * prod(mesh.sizes.values()), "seq": _length(plan)}


def _length(plan: Mapping[str, Any]) -> int:
    """A length of the sequence that every rank can cut and the model takes, as odd as possible."""
    step = plan["seq_multiple"] or 1
    most = min(plan["max_seq"] or SEQ * step, SEQ * step) // step
    return step * next((n for n in range(most, 1, -1) if all(n % k for k in range(2, int(n**0.5) + 1))), 1)


def _sum(
    what: str,
    interpreter: Interpreter,
    parts: Sequence[Part],
    method: str,
    given: Mapping[str, Value],
    data: frozenset[str],
    size: Callable[[str], float],
) -> Iterator[Finding]:
    """What is wrong with the result of the last part, which the training program sums over the data axes."""
    received: tuple[Any, ...] = ()
    found: Any = None
    for part in parts:
        line = interpreter.text.classes[part.module.cls][method].lineno
        try:
            found = interpreter.call(part.module, method, *received, **{name: given[name] for name in part.reads})
            received = found if isinstance(found, tuple) else (found,)
            sent_as_planned(part, received, size)
        except Wrong as wrong:
            yield Finding(line, 1, str(wrong), followed=True)
            return
        if any(not isinstance(value, Value) for value in received):
            return
        if part.sends is None and isinstance(found, Value):
            for message in _no_sum(what, found, data):
                yield Finding(line, 1, message, followed=True)


def _no_sum(what: str, found: Value, data: frozenset[str]) -> Iterator[str]:
    if found.dims:
        yield f"the {what} is no number but {found}"
    if extra := found.partial - data:
        over = f"over {spell_axes(extra)}, and the training program sums over {spell_axes(data)}"
        yield f"the {what} is still to be summed {over}"
    if missing := data - found.partial - found.cut:
        yield f"the {what} is the same on every rank of {spell_axes(missing)}, and the training program would add it up"
    if found.replicated:
        where = spell_axes(found.replicated)
        yield f"the gradient of the {what} starts on every rank of {where}, and would be added up"
