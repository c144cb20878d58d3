"""The source's module tree, as bodies: what each module computes, calls and loops over.

A module gets a class of its own unless its body is one op: then that op is written in its caller. Containers have no
body; their members belong to the module that runs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphpar.ir.calls import entered, repeated
from graphpar.ir.graph import Graph, Loop, Node, ancestors, body_path, depending, plain, reachable
from graphpar.ir.quadratic import is_core

LEAVES = frozenset({"parameter", "buffer", "input", "constant"})
FREE_OF_CHARGE = frozenset({"reshape", "permute", "unsqueeze", "expand", "upcast", "loop_enter", "loop_leave"})
_CONTAINERS = "torch.nn.modules.container"


@dataclass(frozen=True, eq=False)
class Statement:
    """One op of this body."""

    node: Node


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a child that has a body."""

    body: Body


@dataclass(frozen=True, eq=False)
class Again:
    """The core of attention, which is run again in the backward pass: a part of the body around it."""

    body: Body


@dataclass(frozen=True, eq=False)
class LoopCall:
    """A loop over the members of a module list, one body per kind; carried values go in and come out by slot."""

    loop: Loop
    bodies: tuple[Body, ...]
    enters: tuple[Node, ...]
    leaves: tuple[Node, ...]


Item: TypeAlias = "Statement | Call | Again | LoopCall"


@dataclass(eq=False)
class Body:
    """What one module does: its items in order, the values it is given and the values it returns."""

    path: str
    items: list[Item] = field(default_factory=list["Item"])
    inputs: list[Node] = field(default_factory=list[Node])
    outputs: list[Node] = field(default_factory=list[Node])

    def values(self) -> Iterable[Node]:
        """Every node computed here or below."""
        for item in self.items:
            match item:
                case Statement():
                    yield item.node
                case Call() | Again():
                    yield from item.body.values()
                case LoopCall():
                    yield from item.leaves
                    for body in item.bodies:
                        yield from body.values()


def owners(graph: Graph) -> dict[str, str]:
    """For each module path of the graph, the path of the module whose body it is written in."""
    counts: dict[str, int] = {}
    called = {p for n in graph.nodes for p in ancestors(n.origin.module)}
    for node in graph.nodes:
        if node.op not in LEAVES | FREE_OF_CHARGE and "forward" not in node.attrs:
            for path in ancestors(node.origin.module):
                counts[path] = counts.get(path, 0) + 1
    found: dict[str, str] = {"": ""}
    for path in sorted(called):
        small = counts.get(path, 0) <= 1 and path not in graph.recomputed
        own = not _is_container(graph, path) and not _is_member(graph, path) and small
        written_here = path == "" or not (own or _is_container(graph, path))
        found[path] = path if written_here else found[path.rpartition(".")[0]]
    return found


def _is_member(graph: Graph, path: str) -> bool:
    """Whether the path stands for the members of a loop: those always have a class."""
    head, _, part = path.rpartition(".")
    return part.startswith("*") and head in graph.loops


def _is_container(graph: Graph, path: str) -> bool:
    module = graph.modules.get(graph.members(path)[0]) if path else None
    return module is not None and module.module == _CONTAINERS


def build(graph: Graph, owner: Mapping[str, str]) -> Body:
    """The body of the whole model."""
    homes = {n: home(n, owner) for n in graph.nodes}
    homes = _settled(graph, homes, owner)
    return _Builder(graph, homes).body("", list(graph.outputs))


def home(node: Node, owner: Mapping[str, str]) -> str:
    """The module in whose body a node is written."""
    return owner.get(node.origin.module, owner.get(node.origin.module.rpartition(".")[0], ""))


def _settled(graph: Graph, homes: dict[Node, str], owner: Mapping[str, str]) -> dict[Node, str]:
    """Transitions stand where they are read best: sums beside what makes them, gathers beside what needs them."""
    users, several = graph.users(), repeated(graph)
    for node in reversed(graph.nodes):
        if "axis" in node.attrs and "forward" in node.attrs:
            value = node.operands[0]
            if str(node.attrs["from"]) == "P":
                homes[node] = homes[value] if value.op not in LEAVES else homes[node]
            else:
                shared = _common([homes[u] for u in users[node]])
                if entered(node.origin.module, shared, several):
                    continue  # what a module with several calls is given, it is given by its caller
                homes[node] = owner.get(shared, shared)
                outside = value.op not in LEAVES | {"loop_enter"}
                if outside and body_path(homes[node]) != body_path(homes[value]):
                    homes[node] = homes[value]
    return homes


def _common(paths: Sequence[str]) -> str:
    split = [p.split(".") if p else [] for p in paths]
    shared: list[str] = []
    for parts in zip(*split, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


class _Builder:
    def __init__(self, graph: Graph, homes: Mapping[Node, str]) -> None:
        self.graph = graph
        self.homes = homes
        self.users = graph.users()
        self.order = {n: i for i, n in enumerate(graph.nodes)}
        self.trained = depending(graph, lambda n: n.op == "parameter" or "received" in n.attrs)

    def body(self, path: str, outputs: list[Node]) -> Body:
        inside = [n for n in self.graph.nodes if self.within(n, path) and n.op not in LEAVES]
        groups: dict[str, list[Node]] = {}
        for node in inside:
            groups.setdefault(self.item_key(node, path), []).append(node)
        items = self.with_core([self.item(key, nodes) for key, nodes in groups.items()], path)
        body = Body(path, _sorted(items, self.order))
        known = set(inside)
        body.outputs = outputs
        body.inputs = self.inputs_of(inside, known, path)
        return body

    def with_core(self, items: list[Item], path: str) -> list[Item]:
        """The items of a body, with the core of its attention as one where that is to be run again."""
        again = any(how == "selective" and self.below(plain(path), at) for at, how in self.graph.recomputed.items())
        core = self.core([i.node for i in items if isinstance(i, Statement)]) if again else []
        if not core:
            return items
        inside = set(core)
        body = Body(path, [Statement(n) for n in core], self.inputs_of(core, inside, path), self.leaving(core))
        return [*(i for i in items if not (isinstance(i, Statement) and i.node in inside)), Again(body)]

    def core(self, nodes: list[Node]) -> list[Node]:
        """The nodes with values for pairs of positions that have gradients, and whatever lies between two of them."""
        core = {n for n in nodes if n in self.trained and is_core(n)}
        ahead, behind = reachable(core), set(core)
        for node in nodes:
            behind |= {node} if behind.intersection(node.operands) else set()
        return [n for n in nodes if n in behind and n in ahead]

    def within(self, node: Node, path: str) -> bool:
        place = self.place(node)
        return path == "" or place == path or place.startswith(f"{path}.")

    def place(self, node: Node) -> str:
        if node.op in ("loop_enter", "loop_leave"):
            loop: str = node.attrs["loop"]
            return self.loop_home(loop)
        return self.homes[node]

    def loop_home(self, loop: str) -> str:
        node = next(n for n in self.graph.nodes if n.op == "loop_leave" and n.attrs["loop"] == loop)
        return self.homes[node]

    def item_key(self, node: Node, path: str) -> str:
        """Which item of the body at `path` a node belongs to: itself, a child's call, or a loop."""
        if node.op in ("loop_enter", "loop_leave") and self.place(node) == path:
            return f"loop {node.attrs['loop']}"
        place = self.homes[node]
        if place == path:
            return f"node {self.order[node]}"
        for loop in self.graph.loops:
            if self.loop_home(loop) == path and place.startswith(f"{loop}.*"):
                return f"loop {loop}"
        return f"call {self.next_home(place, path)}"

    def next_home(self, place: str, path: str) -> str:
        """The nearest home below `path` on the way to `place`."""
        homes = set(self.homes.values())
        return next(p for p in ancestors(place) if p != path and p in homes and self.below(p, path))

    def below(self, place: str, path: str) -> bool:
        return path == "" or place.startswith(f"{path}.")

    def item(self, key: str, nodes: list[Node]) -> Item:
        kind, _, name = key.partition(" ")
        match kind:
            case "node":
                return Statement(nodes[0])
            case "call":
                return Call(self.body(name, self.leaving(nodes)))
            case _:
                return self.loop(self.graph.loops[name], nodes)

    def leaving(self, nodes: list[Node]) -> list[Node]:
        inside = set(nodes)
        outputs = set(self.graph.outputs)
        return [n for n in nodes if n in outputs or any(u not in inside for u in self.users[n])]

    def loop(self, loop: Loop, nodes: list[Node]) -> LoopCall:
        enters = sorted((n for n in nodes if n.op == "loop_enter"), key=lambda n: n.attrs["slot"])
        leaves = sorted((n for n in nodes if n.op == "loop_leave"), key=lambda n: n.attrs["slot"])
        bodies: list[Body] = []
        for kind in range(len(set(loop.kinds))):
            path = f"{loop.path}.{loop.part(kind)}"
            results = [leave.args[kind] for leave in leaves]
            bodies.append(self.body(path, [r for r in results if isinstance(r, Node)]))
        given = sorted({v for b in bodies for v in b.inputs} | set(enters), key=self.rank)
        for body in bodies:
            body.inputs = list(given)  # one call serves every kind
        return LoopCall(loop, tuple(bodies), tuple(enters), tuple(leaves))

    def inputs_of(self, inside: list[Node], known: set[Node], path: str) -> list[Node]:
        given = self.graph.inputs if path == "" else ()
        found: dict[Node, None] = dict.fromkeys(
            n for n in given if "received" in n.attrs
        )  # also what is only passed on
        for node in inside:
            for operand in node.operands:
                if operand not in known and not self.own(operand, path):
                    found[operand] = None
        return sorted(found, key=self.rank)

    def rank(self, node: Node) -> tuple[int, int]:
        """What comes from the stage before first, then carried values, then others of the batch, parameters last."""
        batch = any(f.name == "batch" for a in node.named for f in a.factors)
        if "received" in node.attrs:
            return (-1, self.order[node])
        kind = 0 if node.op == "loop_enter" else 1 if batch else 3 if node.op in LEAVES - {"input"} else 2
        return (kind, self.order[node])

    def own(self, node: Node, path: str) -> bool:
        """Whether a parameter or buffer lies below this module, or a constant is written where it is used."""
        if node.op == "constant":
            return True
        return node.op in ("parameter", "buffer") and (path == "" or node.attrs["name"].startswith(f"{plain(path)}."))


def reads(item: Item) -> list[Node]:
    """The values that an item needs."""
    match item:
        case Statement():
            return list(item.node.operands)
        case Call() | Again():
            return item.body.inputs
        case LoopCall():
            starts = [n.operands[0] for n in item.enters]
            entered = set(item.enters)
            return [*starts, *(i for b in item.bodies for i in b.inputs if i not in entered)]


def makes(item: Item) -> list[Node]:
    """The values that an item gives to the items after it."""
    match item:
        case Statement():
            return [item.node]
        case Call() | Again():
            return item.body.outputs
        case LoopCall():
            return list(item.leaves)


def _sorted(items: Sequence[Item], order: Mapping[Node, int]) -> list[Item]:
    """Program order, as far as what each item needs is made before it."""
    maker = {value: item for item in items for value in makes(item)}
    placed: dict[Item, None] = {}

    def put(item: Item) -> None:
        if item not in placed:
            for value in sorted(reads(item), key=order.__getitem__):
                if value in maker and maker[value] is not item:
                    put(maker[value])
            placed[item] = None

    for item in sorted(items, key=lambda i: min((order[v] for v in makes(i)), default=0)):
        put(item)
    return list(placed)
