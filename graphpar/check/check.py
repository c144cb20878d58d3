"""A build's text against its plan: that ranks together compute one device's values and gradients, in step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from graphpar.check.dims import Dim, Factor, Wrong, cut_by, cut_by_any, dimension, length
from graphpar.check.interpret import Finding, Interpreter
from graphpar.check.mesh import Mesh
from graphpar.check.program import Declared, Module, read
from graphpar.check.rules import Collective, Trace
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
    methods = ["__init__", "forward", *(["count"] if plan["count"] else [])]
    if missing := [m for m in methods if m not in interpreter.text.classes.get(cls, {})]:
        return [Finding(1, 1, f"there is no class {cls} with {' and '.join(missing)}", followed=True)]
    model = interpreter.build(cls, mesh)
    findings = [*interpreter.findings, *_place(model, plan, mesh)]
    interpreter.findings.clear()
    if findings:
        return findings
    inputs = {entry["name"]: _input(entry, plan, mesh) for entry in plan["inputs"]}
    given = {**inputs, **({"count": Value(())} if plan["count"] else {})}
    findings += _sum("loss", interpreter, model, "forward", given, data)
    if not interpreter.findings and not findings:
        findings += _in_order(trace.found, plan)
    if plan["count"]:
        findings += _sum("count", interpreter, model, "count", inputs, data)
    return [*interpreter.findings, *findings]


def _place(model: Module, plan: Mapping[str, Any], mesh: Mesh) -> Iterator[Finding]:
    """Put a value in the place of each declaration that the plan agrees with."""
    expected = {**plan["parameters"], **plan["buffers"]}
    for path, module, name, declared in _declared(model, ""):
        entry = expected.pop(path, None)
        if entry is None:
            yield Finding(
                declared.line, 1, f"{path} is nothing that the plan knows: it would never be loaded", followed=True
            )
            continue
        for message in _disagreements(path, declared, entry, mesh):
            yield Finding(declared.line, 1, message, followed=True)
        module.attributes[name] = _parameter(entry, mesh)
    for path in expected:
        yield Finding(1, 1, f"{path} is in the plan, but no module declares it", followed=True)


def _declared(module: Module, path: str) -> Iterator[tuple[str, Module, str, Declared]]:
    for name, value in list(module.attributes.items()):
        own = f"{path}{name}"
        if isinstance(value, Declared):
            yield own, module, name, value
        elif isinstance(value, Module):
            value.path = own
            yield from _declared(value, f"{own}.")
        elif isinstance(value, tuple):
            for i, item in enumerate(value):
                if isinstance(item, Module):
                    item.path = f"{own}.{i}"
                    yield from _declared(item, f"{own}.{i}.")


def _disagreements(path: str, declared: Declared, entry: Mapping[str, Any], mesh: Mesh) -> Iterator[str]:
    dims = _dims(entry, mesh)
    local = tuple(map(length, dims))
    if twice := frozenset(a for i, dim in enumerate(dims) for a in cut_by(dim) & cut_by_any(dims[:i])):
        yield f"{path} is cut over {_spell(twice)} in two dimensions: no rank has what lies off the diagonal"
    if declared.shape != local:
        yield f"{path} is {list(declared.shape)} here, but this rank's part of {entry['shape']} is {list(local)}"
    if "sharded" not in entry:
        return
    for word, have, want in (
        ("sharded over", declared.sharded, _parameter(entry, mesh).cut),
        ("a summand after backward over", declared.grad_sum, frozenset(mesh.live(tuple(entry["grad_sum"])))),
    ):
        if have != want:
            yield f"{path} is {word} {_spell(have)} here, and {_spell(want)} in the plan"


def _spell(axes: frozenset[str]) -> str:
    return " ".join(sorted(axes)) or "no axis"


def _dims(entry: Mapping[str, Any], mesh: Mesh) -> tuple[Dim, ...]:
    if "dims" not in entry:
        return tuple(dimension([[Factor(size)]]) for size in entry["shape"])
    return tuple(
        dimension([[_factor(size, axes, mesh) for size, axes in segment] for segment in dim]) for dim in entry["dims"]
    )


def _factor(size: int, axes: Sequence[str], mesh: Mesh) -> Factor:
    live = mesh.live(tuple(axes))
    return Factor(size // prod(mesh.sizes[a] for a in live), live)


def _parameter(entry: Mapping[str, Any], mesh: Mesh) -> Value:
    replicated = frozenset(mesh.live(tuple(entry.get("grad_sum", ()))))
    return Value(_dims(entry, mesh), replicated=replicated, grad=bool(entry.get("trainable", False)))


def _input(entry: Mapping[str, Any], plan: Mapping[str, Any], mesh: Mesh) -> Value:
    sizes = {"batch": BATCH * prod(mesh.sizes.values()), "seq": _length(plan)}
    dims: list[Dim] = []
    for i, word in enumerate(entry["axes"].split()):
        axes = mesh.live(tuple(entry["cut"].get(str(i), ())))
        size = sizes[word.partition("@")[0]]
        cut = prod(mesh.sizes[a] for a in axes)
        dims.append(dimension([[Factor(size // cut, axes)]]))
    return Value(tuple(dims))


def _length(plan: Mapping[str, Any]) -> int:
    """A length of the sequence that every rank can cut and the model takes, as odd as possible."""
    step = plan["seq_multiple"] or 1
    most = min(plan["max_seq"] or SEQ * step, SEQ * step) // step
    return step * next((n for n in range(most, 1, -1) if all(n % k for k in range(2, int(n**0.5) + 1))), 1)


def _sum(
    what: str, interpreter: Interpreter, model: Module, method: str, given: Mapping[str, Value], data: frozenset[str]
) -> Iterator[Finding]:
    """What is wrong with the result of a method, which the training program sums over the data axes."""
    line = interpreter.text.classes[model.cls][method].lineno
    try:
        found = interpreter.call(model, method, **given)
    except Wrong as wrong:
        yield Finding(line, 1, str(wrong), followed=True)
        return
    if isinstance(found, Value):
        for message in _no_sum(what, found, data):
            yield Finding(line, 1, message, followed=True)


def _no_sum(what: str, found: Value, data: frozenset[str]) -> Iterator[str]:
    if found.dims:
        yield f"the {what} is no number but {found}"
    if extra := found.partial - data:
        over = f"over {_spell(extra)}, and the training program sums over {_spell(data)}"
        yield f"the {what} is still to be summed {over}"
    if missing := data - found.partial - found.cut:
        yield f"the {what} is the same on every rank of {_spell(missing)}, and the training program would add it up"
    if found.replicated:
        yield f"the gradient of the {what} starts on every rank of {_spell(found.replicated)}, and would be added up"


def collectives(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The collectives of a plan, in the order in which they run forward."""
    return list(_flat(plan["collectives"]))


def _in_order(found: Sequence[Collective], plan: Mapping[str, Any]) -> Iterator[Finding]:
    """The first collective that is not the plan's next one."""
    expected = [(e["forward"], e["backward"], e["axis"]) for e in collectives(plan)]
    ran = [(c.forward, c.backward, c.axis) for c in found]
    for i, (want, have) in enumerate(zip(expected, ran, strict=False)):
        if want != have:
            message = f"{_words(have)} runs here, where the plan has {_words(want)} (number {i + 1})"
            yield Finding(found[i].line, 1, message, followed=True)
            return
    if len(ran) != len(expected):
        line = found[-1].line if found else 1
        yield Finding(line, 1, f"{len(ran)} collectives run, and the plan has {len(expected)}", followed=True)


def _words(collective: tuple[str | None, str | None, str]) -> str:
    forward, backward, axis = collective
    return f"{forward or 'nothing'} forward and {backward or 'nothing'} backward over {axis}"


def _flat(entries: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        if "loop" in entry:
            for kind in entry["kinds"]:
                yield from _flat(entry["bodies"][kind])
        else:
            yield entry
