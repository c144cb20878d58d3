"""One module of a picture, with what flows into it and out of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.picture import Edge, Item, Module, Picture, Value

_NUMBER = re.compile(r"\.(\d+|\*)(?=\.|$)|\[[\d:., ]+\]")
REST = "rest"  # of the model, behind the module


def part(picture: Picture, path: str) -> Picture:
    """The picture of the module at `path`; of layers that are drawn as one, any of them stands for all.

    Raises GraphparError with the modules that there are, if none is called so.
    """
    modules = list(_modules(picture.root))
    module = next((m for m in modules if m.path == path), None)
    module = module or next((m for m in modules if _NUMBER.sub("#", m.path) == _NUMBER.sub("#", path)), None)
    if module is None:
        raise GraphparError(_no_module(path, [m.path for m in modules if m.path]))
    return _alone(picture, module)


def _alone(picture: Picture, module: Module) -> Picture:
    inside = set(_ids(module))
    edges = [e for e in picture.edges if e.head in inside or e.tail in inside]
    names = {v.id: v.name for v in picture.inputs}
    given = {e.tail: e.axes for e in edges if e.tail not in inside}
    inputs = tuple(Value(tail, names.get(tail, "from before"), axes) for tail, axes in given.items())
    leaving = list(dict.fromkeys(e.axes for e in edges if e.head not in inside))
    result = Value(REST, "to what follows", ", ".join(leaving))
    drawn = dict.fromkeys(e if e.head in inside else Edge(e.tail, REST, e.axes) for e in edges)
    return replace(picture, root=replace(module, items=(module,)), inputs=inputs, result=result, edges=tuple(drawn))


def _modules(module: Module) -> Iterator[Module]:
    yield module
    for item in module.items:
        if isinstance(item, Module):
            yield from _modules(item)


def _ids(item: Item) -> Iterator[str]:
    yield item.id
    if isinstance(item, Module):
        for inner in item.items:
            yield from _ids(inner)


def _no_module(path: str, paths: list[str]) -> Diagnostic:
    return Diagnostic(
        "no-such-module",
        None,
        f"no module in the picture is called `{path}`",
        why=("modules that neither call others nor communicate are drawn inside those that call them",),
        fix="one of: " + "  ".join(dict.fromkeys(paths)),
    )
