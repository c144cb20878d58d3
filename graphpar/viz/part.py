"""One module of a picture, with what flows into it and out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.picture import Argument, Edge, Item, Module, Picture, Value, alike


def part(picture: Picture, path: str) -> Picture:
    """The picture of the module at `path`; of layers that are drawn as one, any of them stands for all.

    Raises GraphparError with the modules that there are, if none is called so.
    """
    found = list(modules(picture.root))
    module = next((m for m in found if m.path == path), None)
    module = module or next((m for m in found if alike(m.path) == alike(path)), None)
    if module is None:
        raise GraphparError(_no_module(path, [m.path for m in found if m.path]))
    shown = alone(picture, module)
    return replace(shown, root=replace(module, items=(module,)))


def alone(picture: Picture, module: Module) -> Picture:
    """The picture of what is in a module, with its arguments and its result in the place of everything around it."""
    inside = set(_ids(module))
    edges = [e for e in picture.edges if e.head in inside or e.tail in inside]
    sources = list(_sources(module, [e for e in edges if e.tail not in inside]))
    stands = {maker: value.id for value, makers in sources for maker in makers}
    leaving = dict.fromkeys(e.axes for e in edges if e.head not in inside)
    result = Value(f"{module.id}_out", "result", ", ".join(leaving))
    drawn = dict.fromkeys(
        Edge(stands.get(e.tail, e.tail), e.head if e.head in inside else result.id, e.axes) for e in edges
    )
    return Picture(picture.plan, tuple(value for value, _ in sources), module, result, tuple(drawn))


def modules(module: Module) -> Iterator[Module]:
    """A module and all below it."""
    yield module
    for item in module.items:
        if isinstance(item, Module):
            yield from modules(item)


def _sources(module: Module, entering: Sequence[Edge]) -> Iterator[tuple[Value, set[str]]]:
    """What flows into a module: a value for all arguments that the same nodes make, with these nodes."""
    axes: dict[str, list[str]] = {}
    for edge in entering:
        axes.setdefault(edge.tail, []).append(edge.axes)
    for i, (names, makers) in enumerate(_together(module.arguments)):
        if read := [maker for maker in axes if maker in makers]:
            flows = dict.fromkeys(text for maker in read for text in axes[maker] if text)
            yield Value(f"{module.id}_in{i}", ", ".join(names), ", ".join(flows)), set(read)


def _together(arguments: Sequence[Argument]) -> list[tuple[list[str], set[str]]]:
    """Arguments by where they come from: those that one node makes stand together."""
    groups: list[tuple[list[str], set[str]]] = []
    for name, makers in arguments:
        nodes = {node for node, _ in makers}
        same = [group for group in groups if group[1] & nodes]
        rest = [group for group in groups if group not in same]
        names = [n for group in same for n in group[0]]
        groups = [*rest, ([*names, name], nodes.union(*(group[1] for group in same)))]
    return groups


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
