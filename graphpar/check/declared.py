"""What a program declares to hold, against what the plan loads there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from graphpar.check.dims import Dim, Factor, cut_by, cut_by_any, dimension, length
from graphpar.check.interpret import Finding
from graphpar.check.mesh import Mesh
from graphpar.check.program import Declared, Module
from graphpar.check.value import Value


def place(model: Module, entries: Mapping[str, Mapping[str, Any]], mesh: Mesh) -> Iterator[Finding]:
    """Put a value in the place of each declaration that agrees with these entries of the plan."""
    expected = dict(entries)
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
        yield f"{path} is cut over {spell_axes(twice)} in two dimensions: no rank has what lies off the diagonal"
    if declared.shape != local:
        yield f"{path} is {list(declared.shape)} here, but this rank's part of {entry['shape']} is {list(local)}"
    if "sharded" not in entry:
        return
    for word, have, want in (
        ("sharded over", declared.sharded, _parameter(entry, mesh).cut),
        ("a summand after backward over", declared.grad_sum, frozenset(mesh.live(tuple(entry["grad_sum"])))),
    ):
        if have != want:
            yield f"{path} is {word} {spell_axes(have)} here, and {spell_axes(want)} in the plan"


def spell_axes(axes: frozenset[str]) -> str:
    """Axes as a message names them."""
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
