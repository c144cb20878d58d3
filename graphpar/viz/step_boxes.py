"""What is alike among the nodes of a picture becomes one box: all biases that are summed over dp, `wq wk wv` of a layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from graphpar.builds.log import home, source
from graphpar.ir.difference import Difference
from graphpar.ir.graph import Graph, Node
from graphpar.viz.neighbours import LEAVES, Mark, Part

Spell = Callable[[Node], str]


@dataclass(frozen=True)
class Line:
    """A node in a box: what it is called, its shape, and what changed in it."""

    name: str
    shape: str
    detail: str


@dataclass(frozen=True)
class Box:
    """Nodes with the same op in the same module that are marked alike and read the same."""

    id: str
    mark: Mark
    op: str
    axis: str  # of a collective
    why: str
    source: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Room:
    """A module with its boxes, and the modules in it; `times` says how often it is there."""

    path: str
    times: int
    boxes: tuple[Box, ...]
    rooms: tuple[Room, ...] = ()


@dataclass(frozen=True)
class Arrow:
    """An edge between boxes."""

    tail: str
    head: str
    mark: Mark


@dataclass(frozen=True)
class Boxes:
    """Everything that is drawn of a step."""

    root: Room
    arrows: tuple[Arrow, ...]


def boxes(found: Difference, part: Part, spell: Spell) -> Boxes:
    """Put the nodes of a part into boxes, and the boxes into their modules."""
    return _Packing(found, part, spell).packed()


class _Packing:
    def __init__(self, found: Difference, part: Part, spell: Spell) -> None:
        self.found = found
        self.part = part
        self.spell = spell
        self.graph: Graph = found.after
        self.outer = {path.rpartition(".")[0] for path in found.after.modules}  # modules that have others
        self.box: dict[Node, str] = {}

    def packed(self) -> Boxes:
        alike: dict[object, list[Node]] = {}
        for node in self.part.marks:
            members = alike.setdefault(self.form(node), [])
            members.append(node)
            self.box[node] = self.box.get(members[0], f"box{len(alike)}")
        rooms: dict[str, list[Box]] = {}
        for number, (path, what) in enumerate(self.found.modules.items(), start=1):
            rooms.setdefault(path, []).append(Box(f"module{number}", "changed", "module", "", what, "", ()))
        for members in alike.values():
            rooms.setdefault(self.room(members[0]), []).append(self.made(members))
        arrows: dict[tuple[str, str], Mark] = {}
        for (tail, head), mark in self.part.edges.items():
            arrows.setdefault((self.box[tail], self.box[head]), mark)
        return Boxes(self.rooms(rooms), tuple(Arrow(*ends, mark) for ends, mark in arrows.items() if len({*ends}) == 2))

    def form(self, node: Node) -> object:
        """What nodes of one box have in common."""
        mark = self.part.marks[node]
        reads = tuple(dict.fromkeys(self.box[a] for a in node.operands if a in self.part.marks))
        if node.op in LEAVES:
            return self.room(node), mark, node.op, self.readers(node) if mark == "kept" else ()
        detail = self.found.changed.get(node, "")
        return self.room(node), mark, node.op, _axis(node), node.note, detail, reads, node.op.startswith("loop")

    def readers(self, node: Node) -> object:
        """The ops that read a leaf; leaves that are read alike share a box."""
        heads = [head for tail, head in self.part.edges if tail is node]
        return tuple(sorted({(self.part.marks[h], h.op, _axis(h)) for h in heads}))

    def made(self, nodes: list[Node]) -> Box:
        first = nodes[0]
        sources = dict.fromkeys(s for n in nodes if (s := source(n)))
        return Box(
            self.box[first],
            self.part.marks[first],
            first.op,
            _axis(first),
            first.note,
            next(iter(sources), "") if len(sources) == 1 else "",
            tuple(Line(self.name(n), self.spell(n), self.detail(n)) for n in nodes),
        )

    def detail(self, node: Node) -> str:
        """What changed in a node; for one that only got names, its sizes."""
        if self.part.marks[node] != "changed":
            return ""
        return self.found.changed.get(node) or " ".join(map(str, node.shape)) or "scalar"

    def name(self, node: Node) -> str:
        """What a node is called within its room."""
        if node.op in LEAVES:
            return node.attrs["name"].removeprefix(f"{self.room(node)}.")
        leaf = node.origin.module.removeprefix(self.room(node)).removeprefix(".")
        return leaf or (node.origin.names[-1] if node.origin.names else "")

    # ------------------------------------------------------------ modules

    def room(self, node: Node) -> str:
        """The module that a node is drawn in: the innermost that has others in it."""
        path = home(node)
        return path if path in self.outer or not path else path.rpartition(".")[0]

    def rooms(self, held: Mapping[str, list[Box]]) -> Room:
        """The tree of rooms; one without boxes of its own and with a single room in it is left out."""
        return self.below("", sorted(held), held)

    def below(self, path: str, paths: list[str], held: Mapping[str, list[Box]]) -> Room:
        inside: dict[str, list[str]] = {}
        for other in paths:
            if other != path:
                inside.setdefault(_next(path, other), []).append(other)
        rooms = tuple(self.below(child, others, held) for child, others in inside.items())
        if len(rooms) == 1 and path not in held and self.times(path) == 1:
            return rooms[0]
        return Room(path, self.times(path), tuple(held.get(path, ())), rooms)

    def times(self, path: str) -> int:
        """How often a module is there: as a body of a loop, or written out and changed alike."""
        if path.rpartition(".")[2].startswith("*"):
            return len(self.graph.members(path))
        return self.part.times.get(path, 1)


def _next(path: str, inner: str) -> str:
    """The module one level below `path` on the way to `inner`."""
    depth = len(path.split(".")) if path else 0
    return ".".join(inner.split(".")[: depth + 1])


def _axis(node: Node) -> str:
    return str(node.attrs["axis"]) if "forward" in node.attrs else ""


def every(room: Room) -> Iterator[Box]:
    """The boxes of a module and of those in it."""
    yield from room.boxes
    for inner in room.rooms:
        yield from every(inner)
