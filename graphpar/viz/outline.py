"""A picture a person can take in: layers that are alike folded, of each module what it holds and what communicates."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod

from graphpar.codegen.members import as_slice
from graphpar.viz.picture import Compute, Edge, Exchange, Item, Module, Picture, Row, Weight

# What a person looks for among statements that read no parameter, by what stands in their code.
WORDS = {
    "attention(": "attention",
    "softmax(": "softmax",
    "gelu(": "gelu",
    "silu(": "silu",
    "relu(": "relu",
    "topk(": "topk",
    "route(": "route",
    "dispatch(": "dispatch",
    "combine(": "combine",
    "cross_entropy(": "cross-entropy",
}
_VARIABLE = re.compile(r"(?<![.\w])(?!self\b)[a-z_]\w*\b(?![(.])")
_LAYERS = re.compile(r"\[\d+(:\d*)*\]")
MOST = 8  # kinds of layers that take turns
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)|(?<=^stage )\d+")


@dataclass(frozen=True)
class Line:
    """Something that a box names: a module, a holder of parameters, an operation; with the largest parameter read."""

    number: int  # of the line of model.py
    text: str
    what: str = ""
    weight: Weight | None = None
    depth: int = 0


def lines(compute: Compute) -> tuple[Line, ...]:
    """What a person looks for among the statements of a box."""
    return tuple(line for row, inner in _calls(compute.rows) for line in _lines(row, inner))


def outlined(picture: Picture) -> Picture:
    """The picture with neighbours that are alike folded into one."""
    same: dict[str, str] = {}
    root = replace(picture.root, items=tuple(_folded(picture.root.items, same)))
    edges = (replace(e, tail=same.get(e.tail, e.tail), head=same.get(e.head, e.head)) for e in picture.edges)
    kept = set(_ids(root.items)) | {v.id for v in (*picture.inputs, picture.result)}
    forward = {name: i for i, name in enumerate(_ids(root.items))}
    drawn = dict.fromkeys(e for e in edges if e.tail != e.head and {e.tail, e.head} <= kept and _falls(e, forward))
    return replace(picture, root=root, edges=tuple(drawn))


# ---------------------------------------------------------------- what a box names


def _calls(rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
    """Each statement with those of the module it calls, where these are written out."""
    found: list[tuple[Row, list[Row]]] = []
    for row in rows:
        if row.depth and found:
            found[-1][1].append(row)
        else:
            found.append((row, []))
    yield from found


def _lines(row: Row, inner: Sequence[Row]) -> Iterator[Line]:
    below = [line for r in inner for line in _own(r)]
    if not row.title:
        yield from _own(row)
    elif len(below) == 1 and below[0].weight:
        yield replace(below[0], what=row.title)
    else:
        yield Line(row.line, _called(row), row.title)
        yield from (replace(line, depth=1) for line in below)


def _own(row: Row) -> Iterator[Line]:
    what = next((word for part, word in WORDS.items() if part in row.code), "")
    holders = [(key, list(group)) for key, group in groupby(row.weights, lambda w: w.name.rpartition(".")[0] or w.name)]
    for key, weights in holders:
        largest = max(weights, key=lambda w: len(w.whole))
        yield Line(row.line, key if largest.name.endswith("weight") else largest.name, "", largest)
    if what and not (holders and what == "softmax"):
        yield Line(row.line, what)


def _called(row: Row) -> str:
    """`self.attn` of `y = self.attn(x)`."""
    found = re.search(r"self\.([\w.\[\]]+)\(", row.code)
    return found[1] if found else row.code


# ---------------------------------------------------------------- layers that are alike


def _folded(items: Sequence[Item], same: dict[str, str]) -> Iterator[Item]:
    for first, *rest in _columns(items):
        inner = replace(first, items=tuple(_folded(first.items, same))) if isinstance(first, Module) else first
        for other in rest:
            same.update((b, same.get(a, a)) for a, b in zip(_every(first), _every(other), strict=True))
        if not isinstance(inner, Module):
            yield inner
            continue
        yield _several(inner, [m.path for m in (first, *rest) if isinstance(m, Module)]) if rest else inner


def _columns(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Items that are drawn as one: neighbours that are alike, or every other, if several kinds take turns."""
    keys = [_likeness(item) for item in items]
    at = 0
    while at < len(items):
        period, times = _turns(items[at:], keys[at:])
        end = at + period * times
        yield from (items[at + k : end : period] for k in range(period))
        at = end


def _turns(items: Sequence[Item], keys: Sequence[object]) -> tuple[int, int]:
    """How many items take turns from the first on, a layer among them, and how often; (1, 1) if they do not."""
    periods = [p for p in range(1, MOST + 1) if any(isinstance(item, Module) for item in items[:p])]
    return max([(1, 1), *((p, _repeats(keys, p)) for p in periods)], key=prod)


def _repeats(keys: Sequence[object], period: int) -> int:
    """How often the first items come, one time behind the other."""
    times = 1
    while keys[times * period : (times + 1) * period] == keys[:period] and len(keys) >= (times + 1) * period:
        times += 1
    return times if times > 1 else 0


def _likeness(item: Item) -> object:
    """What neighbours share that differ in nothing but numbers and variables; else a thing of its own."""
    if isinstance(item, Compute):
        return tuple(_VARIABLE.sub("", row.code) for row in item.rows)
    if isinstance(item, Exchange):
        return item.axis, item.forward, item.backward, item.row.axes
    if not _NUMBER.search(item.path):
        return item.id
    return _NUMBER.sub("#", item.path.partition(",")[0], count=1), _sketch(item)


def _sketch(item: Item) -> object:
    """What an item shows, its number left out."""
    match item:
        case Compute():
            return tuple(row.line for row in item.rows)
        case Exchange():
            return item.row.line, item.forward, item.backward, item.axis, item.why
        case Module():
            return item.cls, item.members, tuple(map(_sketch, item.items))


def _several(module: Module, paths: Sequence[str]) -> Module:
    at = [int(found[0]) for path in paths if (found := _NUMBER.search(path))]
    members = f"× {len(paths)}"
    if module.path.startswith("stage "):
        inner = replace(module, path=f"stages {at[0]} to {at[-1]}", members=members)
        return _without_numbers(inner)
    path = re.sub(r"\.\d+(?=\.|$)", as_slice(at, None), module.path, count=1)
    return replace(_renamed(module, module.path, path), members=members)


def _without_numbers(module: Module) -> Module:
    """Stages that are alike have other layers each."""
    items = tuple(_without_numbers(item) if isinstance(item, Module) else item for item in module.items)
    return replace(module, path=_LAYERS.sub("[..]", module.path), items=items)


def _renamed(module: Module, old: str, new: str) -> Module:
    """With another name for it, and for what lies in it."""
    items = tuple(_renamed(item, old, new) if isinstance(item, Module) else item for item in module.items)
    path = new + module.path.removeprefix(old) if module.path.startswith(old) else module.path
    return replace(module, path=path, items=items)


def _every(item: Item) -> Iterator[str]:
    """The ids of an item and of all below."""
    yield item.id
    if isinstance(item, Module):
        for inner in item.items:
            yield from _every(inner)


def _ids(items: Iterable[Item]) -> list[str]:
    return [name for item in items for name in _every(item)]


def _falls(edge: Edge, order: dict[str, int]) -> bool:
    """Whether an edge goes on, and not from the last of several layers back to the next."""
    return order.get(edge.tail, -1) < order.get(edge.head, len(order))
