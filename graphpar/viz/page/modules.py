"""The modules of a picture: as a tree, and each as a picture of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphpar.viz.dot import MONO, SANS, dot
from graphpar.viz.heading import Heading
from graphpar.viz.picture import Edge, Exchange, Module, Picture, Value
from graphpar.viz.program import Class, Statement

OVERVIEW = "overview"  # the name of the picture that a page opens with


def tree(module: Module) -> dict[str, Any]:
    """A module with those below it, and the mesh axes that it communicates over."""
    below = [tree(item) for item in module.items if isinstance(item, Module)]
    own = [axis for item in module.items if isinstance(item, Exchange) for axis in item.axis.split()]
    return {
        "id": module.id,
        "path": module.path,
        "cls": module.cls,
        "members": module.members,
        "over": list(dict.fromkeys([*own, *(axis for child in below for axis in child["over"])])),
        "items": below,
    }


def every(module: Module) -> Iterator[Module]:
    """A module and all below it."""
    yield module
    for item in module.items:
        if isinstance(item, Module):
            yield from every(item)


def pictures(picture: Picture, classes: Mapping[str, Class]) -> dict[str, Picture]:
    """Pictures by name: the whole, and each module by its id."""
    below = (module for module in every(picture.root) if module.id != picture.root.id)
    return {OVERVIEW: picture, **{module.id: alone(picture, module, classes[module.cls]) for module in below}}


def texts(pictures: Mapping[str, Picture], heading: Heading) -> dict[str, str]:
    """The DOT text of each."""
    return {name: _text(name, picture, heading) for name, picture in pictures.items()}


def alone(picture: Picture, module: Module, cls: Class) -> Picture:
    """The picture of one module, with its arguments and its result in the place of everything around it."""
    inside = set(_nodes(module))
    groups = _together(module.arguments)
    sources = [Value(f"{module.id}_in{i}", ", ".join(names), _axes(names, cls)) for i, (names, _) in enumerate(groups)]
    source_of = {maker: s.id for s, (_, makers) in zip(sources, groups, strict=True) for maker in makers}
    last = next(item for item in reversed(cls.body) if isinstance(item, Statement))
    result = Value(f"{module.id}_out", "result", last.axes, last.pending)
    edges: dict[Edge, None] = {}
    for edge in picture.edges:
        if edge.head in inside:
            edges[edge if edge.tail in inside else Edge(source_of[edge.tail], edge.head)] = None
        elif edge.tail in inside:
            edges[Edge(edge.tail, result.id)] = None
    read = {edge.tail for edge in edges}
    return Picture(picture.plan, tuple(s for s in sources if s.id in read), module, result, tuple(edges))


def _nodes(module: Module) -> Iterator[str]:
    for item in module.items:
        if isinstance(item, Module):
            yield from _nodes(item)
        else:
            yield item.id


def _together(arguments: Sequence[tuple[str, tuple[str, ...]]]) -> list[tuple[list[str], set[str]]]:
    """Arguments by where they come from: those that one node makes stand together."""
    groups: list[tuple[list[str], set[str]]] = []
    for name, makers in arguments:
        same = [group for group in groups if group[1] & set(makers)]
        rest = [group for group in groups if group not in same]
        names = [n for group in same for n in group[0]]
        groups = [*rest, ([*names, name], set(makers).union(*(group[1] for group in same)))]
    return groups


def _axes(names: Sequence[str], cls: Class) -> str:
    return ", ".join(axes for name, axes in cls.arguments if name in names)


def _text(name: str, picture: Picture, heading: Heading) -> str:
    """The DOT text, without what the page says itself.

    The layout in a page knows the widths of a few fonts only, and counts a fixed space as two letters.
    """
    bare = replace(heading, facts=(), layout=())
    of_module = replace(bare, model=picture.root.path, source=picture.root.cls, gradients=())
    text = dot(picture, bare if name == OVERVIEW else of_module)
    return text.replace(MONO, "Courier").replace(SANS, "Arial").replace("&#160;", " ")
