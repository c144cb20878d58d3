"""What is drawn of a step: boxes of ops that are alike, and tables of parameters, in the modules they belong to."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from graphpar.builds.log import home, source
from graphpar.ir.difference import Difference
from graphpar.ir.graph import Graph, Node
from graphpar.viz.layers import once
from graphpar.viz.neighbours import Mark, Part

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
class Done:
    """What a step did to a parameter alone: an op that is new or gone, over these mesh axes, or another property."""

    mark: Mark
    what: str
    axes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """A parameter or buffer, and what was done to it."""

    name: str
    shape: str
    done: tuple[Done, ...]


@dataclass(frozen=True)
class Table:
    """The parameters of a module, and the reasons for what was done to them."""

    id: str
    rows: tuple[Row, ...]
    why: tuple[str, ...]


@dataclass
class Room:
    """A module with what is drawn in it; `times` says how often it is there."""

    path: str
    times: int
    boxes: list[Box] = field(default_factory=list[Box])
    tables: list[Table] = field(default_factory=list[Table])
    rooms: list[Room] = field(default_factory=list["Room"])


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
    part, times = once(part)
    return _Packing(found, part, spell, times).packed()


@dataclass
class _Packing:
    found: Difference
    part: Part
    spell: Spell
    layers: Mapping[str, int]
    box: dict[Node, str] = field(default_factory=dict[Node, str])
    rooms: dict[str, Room] = field(default_factory=dict[str, Room])

    @property
    def graph(self) -> Graph:
        return self.found.after

    def packed(self) -> Boxes:
        root = self.room("")
        for number, (path, what) in enumerate(self.found.modules.items(), start=1):
            self.room(path).boxes.append(Box(f"module{number}", "changed", "module", "", what, "", ()))
        self.tables()
        alike: dict[object, list[Node]] = {}
        for node in self.part.marks:
            members = alike.setdefault(self.form(node), [])
            members.append(node)
            self.box[node] = self.box.get(members[0], f"box{len(alike)}")
        for members in alike.values():
            self.room(self.path(members[0])).boxes.append(self.made(members))
        arrows: dict[tuple[str, str], Mark] = {}
        for (tail, head), mark in self.part.edges.items():
            arrows.setdefault((self.box[tail], self.box[head]), mark)
        return Boxes(root, tuple(Arrow(*ends, mark) for ends, mark in arrows.items() if len({*ends}) == 2))

    # ------------------------------------------------------------ boxes

    @cached_property
    def tails(self) -> Mapping[Node, tuple[Node, ...]]:
        """What each node reads in the picture."""
        found: dict[Node, tuple[Node, ...]] = {}
        for tail, head in self.part.edges:
            found[head] = (*found.get(head, ()), tail)
        return found

    def form(self, node: Node) -> object:
        """What nodes of one box have in common."""
        mark = self.part.marks[node]
        reads = tuple(dict.fromkeys(self.box.get(a, "") for a in self.tails.get(node, ())))
        alone = () if reads else node  # a value that comes from elsewhere is like no other
        return self.path(node), mark, node.op, _axis(node), node.note, self.found.changed.get(node, ""), reads, alone

    def made(self, nodes: list[Node]) -> Box:
        first = nodes[0]
        sources = dict.fromkeys(s for n in nodes if (s := source(n)))
        return Box(
            self.box[first],
            self.part.marks[first],
            first.op,
            _axis(first),
            first.note,
            next(iter(sources)) if len(sources) == 1 else "",
            tuple(Line(self.name(n), self.spell(n), self.found.changed.get(n, "")) for n in nodes),
        )

    def name(self, node: Node) -> str:
        """What a node is called within its room."""
        if "name" in node.attrs:
            return node.attrs["name"].removeprefix(f"{self.path(node)}.")
        leaf = node.origin.module.removeprefix(self.path(node)).removeprefix(".")
        return leaf or (node.origin.names[-1] if node.origin.names else "")

    # ------------------------------------------------------------ parameters

    def tables(self) -> None:
        held: dict[str, list[Node]] = {}
        for node in self.part.tensors:
            held.setdefault(self.path(node), []).append(node)
        for number, (path, nodes) in enumerate(held.items(), start=1):
            rows = tuple(Row(self.name(n), self.spell(n), self.done(n)) for n in nodes)
            reasons = dict.fromkeys(done.note for n in nodes for _, done in self.part.tensors[n] if done.note)
            self.room(path).tables.append(Table(f"table{number}", rows, tuple(reasons)))

    def done(self, tensor: Node) -> tuple[Done, ...]:
        """What was done to a tensor; to one that was only named, it was given names for its sizes."""
        told: dict[tuple[Mark, str], tuple[str, ...]] = {}
        for mark, node in self.part.tensors[tensor]:
            what = self.found.changed[node] if mark == "changed" else node.op
            told[mark, what] = (*told.get((mark, what), ()), *_axis(node).split())
        if not told:
            return (Done("kept", " ".join(map(str, tensor.shape)) or "scalar"),)
        return tuple(Done(mark, what, axes) for (mark, what), axes in told.items())

    # ------------------------------------------------------------ modules

    def path(self, node: Node) -> str:
        """The module that a node is drawn in: the innermost that has others in it, or the model.

        Modules around a list of layers hold all of the picture, so they are not drawn.
        """
        inside = home(node)
        path = inside if self.graph.members(inside)[0] in self.outer else inside.rpartition(".")[0]
        return "" if path in self.around else path

    @cached_property
    def outer(self) -> frozenset[str]:
        """The modules that have others in them."""
        return frozenset(path.rpartition(".")[0] for path in self.graph.modules)

    @cached_property
    def around(self) -> frozenset[str]:
        """The lists of layers, and what they lie in."""
        lists = {path for path in self.graph.lists() if "*" not in path}
        parents = {".".join(path.split(".")[:i]) for path in lists for i in range(path.count(".") + 1)}
        return frozenset(lists | parents)

    def room(self, path: str) -> Room:
        """The room of a module, within those around it."""
        if path not in self.rooms:
            self.rooms[path] = Room(path, self.times(path))
            if path:
                parent = path.rpartition(".")[0]
                self.room("" if parent in self.around else parent).rooms.append(self.rooms[path])
        return self.rooms[path]

    def times(self, path: str) -> int:
        """How often a module is there: as a body of a loop, or written out and changed alike."""
        if path.rpartition(".")[2].startswith("*"):
            return len(self.graph.members(path))
        return self.layers.get(path, 1)


def _axis(node: Node) -> str:
    return str(node.attrs["axis"]) if "forward" in node.attrs else ""
