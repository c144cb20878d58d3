"""Bodies of a loop: iterations that follow different rules get their own, and what each changes is its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from graphpar.ir.graph import Graph, Loop, Node, with_outputs
from graphpar.language.schema import Spec
from graphpar.language.selectors import matches


def split_bodies(graph: Graph, spec: Spec) -> Graph:
    """Split every loop so that all iterations of one body lie in the same regions."""
    for path in graph.loops:
        graph = _split(graph, path, spec)
    return graph


def body_of(value: Node, consumer: Node) -> str:
    """The body of a loop that changes a value for this consumer; nothing for a value that no loop carries.

    All bodies are given the same carried values: what one of them gathers is not known to the others.
    """
    while "forward" in value.attrs:
        value = value.operands[0]
    if value.op != "loop_enter":
        return ""
    loop: str = value.attrs["loop"]
    return ".".join(consumer.origin.module.split(".")[: len(loop.split(".")) + 1])


def _split(graph: Graph, path: str, spec: Spec) -> Graph:
    loop = graph.loops[path]
    keys = [(kind, _regions(graph, loop, i, spec)) for i, kind in enumerate(loop.kinds)]
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    if len(numbers) == len(set(loop.kinds)):
        return graph
    return with_bodies(graph, loop, Loop(path, tuple(numbers[k] for k in keys)), [kind for kind, _ in numbers])


def _regions(graph: Graph, loop: Loop, index: int, spec: Spec) -> tuple[object, ...]:
    """For each op of the body, the regions it lies in when it runs as this iteration."""
    prefix = f"{loop.path}.{loop.part(loop.kinds[index])}"
    lists, aliases = graph.lists(), graph.aliases()
    found: list[tuple[int, ...]] = []
    for node in graph.nodes:
        place = _path(node)
        if place == prefix or place.startswith(f"{prefix}."):
            actual = f"{loop.path}.{index}{place[len(prefix) :]}"
            line = (node.origin.file, node.origin.line)
            found.append(
                tuple(
                    r
                    for r, region in enumerate(spec.regions)
                    if any(matches(s, actual, op=node.op, line=line, lists=lists, aliases=aliases) for s in region.at)
                )
            )
    return tuple(found)


def _path(node: Node) -> str:
    return node.attrs["name"] if node.op in ("parameter", "buffer") else node.origin.module


def with_bodies(graph: Graph, old: Loop, new: Loop, origins: Sequence[int]) -> Graph:
    """Copy the body of each old kind for every new kind that comes from it."""
    loops = {**graph.loops, old.path: new}
    made: list[Node] = []
    outer: dict[Node, Node] = {}
    inner: list[dict[Node, Node]] = [{} for _ in origins]
    for node in graph.nodes:
        owner = next((k for k in set(old.kinds) if _inside(node, old, k)), None)
        if owner is None:
            made.append(_outer(node, old, outer, inner, origins))
            outer[node] = made[-1]
            continue
        for kind, origin in enumerate(origins):
            if origin == owner:
                renamed = _renamed(node, f"{old.path}.{old.part(owner)}", f"{old.path}.{new.part(kind)}")
                args = tuple(inner[kind].get(a, outer.get(a, a)) if isinstance(a, Node) else a for a in renamed.args)
                inner[kind][node] = replace(renamed, args=args)
                made.append(inner[kind][node])
    outputs = tuple(outer[o] for o in graph.outputs)
    again = {name: how for path, how in graph.recomputed.items() for name in _names(path, old, new, origins)}
    return with_outputs(replace(graph, loops=loops, recomputed=again), made, outputs)


def _names(path: str, old: Loop, new: Loop, origins: Sequence[int]) -> Iterator[str]:
    """What the bodies are called that come from a path."""
    parts = {f"{old.path}.{old.part(kind)}": kind for kind in old.kinds}
    head = next((p for p in parts if path == p or path.startswith(f"{p}.")), None)
    if head is None:
        yield path
    else:
        kinds = [kind for kind, origin in enumerate(origins) if origin == parts[head]]
        yield from (f"{new.path}.{new.part(kind)}{path[len(head) :]}" for kind in kinds)


def _outer(
    node: Node, old: Loop, outer: dict[Node, Node], inner: Sequence[dict[Node, Node]], origins: Sequence[int]
) -> Node:
    if node.op == "loop_leave" and node.attrs["loop"] == old.path:
        return replace(node, args=tuple(inner[k][node.operands[o]] for k, o in enumerate(origins)))
    return replace(node, args=tuple(outer[a] if isinstance(a, Node) else a for a in node.args))


def _inside(node: Node, loop: Loop, kind: int) -> bool:
    prefix = f"{loop.path}.{loop.part(kind)}"
    return _path(node) == prefix or _path(node).startswith(f"{prefix}.")


def _renamed(node: Node, old: str, new: str) -> Node:
    def rename(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(f"{old}.") else path

    attrs = {**node.attrs, "name": rename(node.attrs["name"])} if "name" in node.attrs else node.attrs
    causes = tuple(replace(c, origin=replace(c.origin, module=rename(c.origin.module))) for c in node.causes)
    return replace(node, attrs=attrs, origin=replace(node.origin, module=rename(node.origin.module)), causes=causes)
