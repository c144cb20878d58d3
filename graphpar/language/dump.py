"""A `Spec` as YAML again: the same spec always gives the same bytes, and reading them gives the same spec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from graphpar.language.schedules import SCHEDULES
from graphpar.language.schema import Budget, DimSpec, Expect, LayoutRule, ModelSpec, Moe, Pipeline, Region, Spec
from graphpar.notation import format_axis, format_tensor

# What any YAML version reads as this text and nothing else, in block and in flow style.
_PLAIN = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*'?", re.IGNORECASE)
_WORDS = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


def dump_spec(spec: Spec) -> str:
    """The spec with every default spelled out that bears on the program; sections without content are left out."""
    lines = [f"version: {spec.version}"]
    lines += _model(spec.model) if spec.model else []
    mesh = {axis.name: str(axis.size) for axis in spec.mesh.axes}
    aliases = {name: _axes(axes) for name, axes in spec.mesh.aliases.items()}
    lines.append(f"mesh: {_flow({**mesh, **({'aliases': _flow(aliases)} if aliases else {})})}")
    lines += _block("dims", ((name, _dim(dim)) for name, dim in spec.dims.items()))
    lines += _block("names", ((rule.at.text, _text(format_tensor(rule.axes))) for rule in spec.names))
    lines += _layout(spec.layout, "")
    lines += ["regions:", *(line for region in spec.regions for line in _region(region))] if spec.regions else []
    lines += _block("uneven", [("default", spec.uneven.default), *spec.uneven.by_name.items()])
    dtype = spec.numerics.grad_reduce_dtype
    numerics = {"grad_reduce_dtype": dtype} if dtype else {}
    numerics |= {"rng": spec.numerics.rng, "deterministic": str(spec.numerics.deterministic).lower()}
    lines += _block("numerics", numerics.items())
    lines += _block("ops", ((name, _text(op.rule)) for name, op in spec.ops.items()))
    lines += _block("outputs", spec.outputs.items())
    lines += _pipeline(spec.pipeline) if spec.pipeline else []
    lines += _moe(spec.moe) if spec.moe else []
    lines += _expect(spec.expect) if spec.expect else []
    lines.append(f"strict: {str(spec.strict).lower()}")
    return "\n".join(lines) + "\n"


def _pipeline(pipeline: Pipeline) -> list[str]:
    words = {"axis": pipeline.axis, "layers": pipeline.layers.text, "schedule": pipeline.schedule}
    lines = [f"  {key}: {_text(word)}" for key, word in words.items()]
    if pipeline.stages is None:
        lines.append("  stages: balanced")
    else:
        stages = [", ".join(selector.text for selector in stage) for stage in pipeline.stages]
        lines += ["  stages:", *(f"    - {_text(stage)}" for stage in stages)]
    if pipeline.schedule in SCHEDULES or "virtual" in pipeline.spans:  # a file says it by itself
        lines.append(f"  virtual: {pipeline.virtual}")
    numbers = [f"  microbatches: {pipeline.microbatches}", "  of: batch", f"  tied: {pipeline.tied}"]
    return ["pipeline:", *lines, *numbers]


def _moe(moe: Moe) -> list[str]:
    words = {"experts": moe.written or moe.experts, "dispatch": moe.dispatch, "tokens": moe.tokens}
    words |= {"capacity_factor": _float(moe.capacity_factor)} if moe.capacity_factor is not None else {}
    return _block("moe", (words | ({"group": moe.group} if moe.group else {})).items())


def _expect(expect: Expect) -> list[str]:
    numbers = {"memory": expect.memory, "lines": expect.lines}
    lines = [f"  {name}: {number}" for name, number in numbers.items() if number is not None]
    if expect.collectives is not None:
        entries = [f"    {_text(b.what)}: {_budget(b)}" for b in expect.collectives]
        lines += ["  collectives:", *entries] if entries else ["  collectives: {}"]
    return ["expect:", *lines] if lines else ["expect: {}"]


def _budget(budget: Budget) -> str:
    numbers = {"count": budget.count, "bytes": budget.bytes}
    return _flow({name: str(number) for name, number in numbers.items() if number is not None})


def _model(model: ModelSpec) -> list[str]:
    entries: list[str] = [f"  object: {_text(model.object)}"] if model.object else []
    entries += [f"  args: {_data(model.args)}"] if model.args else []
    if model.inputs:
        entries.append("  inputs:")
    for entry in model.inputs:
        axes = ", ".join(f"{name}={size}" for name, size in entry.axes)
        entries.append(f"    {_text(entry.name)}: {entry.dtype}[{axes}]")
    entries += [f"  loss: {_text(model.loss)}"] if model.loss else []
    return ["model:", *entries] if entries else ["model: {}"]


def _dim(dim: DimSpec) -> str:
    if dim.equals is None and dim.multiple_of is None and dim.size is not None:
        return str(dim.size)
    parts = {"size": str(dim.size)} if dim.size is not None else {}
    parts |= {"is": _text(format_axis((dim.equals,)))} if dim.equals is not None else {}
    parts |= {"multiple_of": str(dim.multiple_of)} if dim.multiple_of is not None else {}
    return _flow(parts)


def _layout(rules: tuple[LayoutRule, ...], indent: str) -> list[str]:
    if not rules:
        return [f"{indent}layout: []"]
    return [f"{indent}layout:", *(f"{indent}  - {_text(rule.name)}: {_axes(rule.axes)}" for rule in rules)]


def _region(region: Region) -> list[str]:
    lines = [f"  - at: {_text(', '.join(selector.text for selector in region.at))}"]
    lines += ["    only: true"] if region.only else []
    lines += [f"    recompute: {str(region.recompute).lower()}"] if region.recompute is not None else []
    lines += [f"    why: {_text(region.why)}"] if region.why else []
    return lines + (_layout(region.layout, "    ") if region.layout else [])


def _block(key: str, entries: Iterable[tuple[str, str]]) -> list[str]:
    lines = [f"  {_text(name)}: {value}" for name, value in entries]
    return [f"{key}:", *lines] if lines else []


def _flow(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_text(name)}: {value}" for name, value in entries.items()) + "}"


def _axes(axes: tuple[str, ...]) -> str:
    return axes[0] if len(axes) == 1 else f"[{', '.join(axes)}]" if axes else "none"


def _text(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


def _data(value: object) -> str:
    """Plain data in flow style, with numbers that all YAML versions read alike."""
    if isinstance(value, Mapping):
        return _flow({str(name): _data(item) for name, item in value.items()})
    if isinstance(value, list):
        return f"[{', '.join(_data(item) for item in value)}]"
    if isinstance(value, float):
        return _float(value)
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _float(value: float) -> str:
    if value != value or value in (float("inf"), -float("inf")):
        return str(value).replace("inf", ".inf").replace("nan", ".nan")
    mantissa, exponent, power = repr(value).partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{int(power):+d}" if exponent else mantissa
