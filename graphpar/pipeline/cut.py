"""The graph of each stage: what it receives, computes and sends.

Only values that depend on a batch and on parameters cross from stage to stage. What follows from the batch alone, or
from nothing, each stage computes for itself, as it has the batch; and so it does with what follows from parameters
alone: a parameter that several stages read is on all of them. A value that is needed behind the next stage is passed on
by every stage between. A pending sum is taken where it is made, so that none crosses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphpar.ir.graph import Graph, Loop, Node, depending, plain, reachable, with_outputs
from graphpar.ir.states import Partial
from graphpar.ir.verify import body
from graphpar.place.bodies import with_bodies

RECEIVED = "received"  # marks an input that the stage before sends


@dataclass(frozen=True)
class Stage:
    """One part of the program. Inputs with the attribute `received` come first, as the stage before sends them."""

    graph: Graph
    layers: range
    last: bool

    @property
    def received(self) -> tuple[Node, ...]:
        """What the stage before sends, in its order."""
        return tuple(n for n in self.graph.inputs if n.attrs.get(RECEIVED))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The inputs of the model that this stage reads."""
        return tuple(n.attrs["name"] for n in self.graph.inputs if not n.attrs.get(RECEIVED))

    @property
    def sends(self) -> tuple[Node, ...]:
        """What the stage behind receives."""
        return () if self.last else self.graph.outputs


def cut(graph: Graph, path: str, layers: Sequence[range], modules: Mapping[str, int]) -> tuple[Stage, ...]:
    """The stages of a placed graph.

    `layers` are the members of the list at `path` that each stage runs; `modules` are further modules that do not run
    before their stage.
    """
    cutter = _Cutter(graph, path, layers, modules)
    return tuple(cutter.stage(s) for s in range(len(layers)))


def sent(graph: Graph, path: str, layers: Sequence[range], modules: Mapping[str, int]) -> frozenset[Node]:
    """What stages send to each other besides what the layers carry, in a graph that need not be placed."""
    cutter = _Cutter(graph, path, layers, modules)
    return frozenset(n for n, home in cutter.home.items() if home < cutter.last_read.get(n, -1))


def pending(stages: Sequence[Stage]) -> Iterator[Node]:
    """What crosses though its sum is still to be taken: no stage may do that."""
    for stage in stages:
        yield from (n for n in stage.sends if any(isinstance(s, Partial) for s in (n.state or {}).values()))


class _Cutter:
    def __init__(self, graph: Graph, path: str, layers: Sequence[range], modules: Mapping[str, int]) -> None:
        self.graph = graph
        self.path = path
        self.layers = layers
        self.of_module = {f"{path}.{i}": s for s, members in enumerate(layers) for i in members} | dict(modules)
        self.loop = graph.loops.get(path)
        self.ends = {n.attrs["slot"]: n for n in graph.nodes if n.op == "loop_leave" and n.attrs["loop"] == path}
        self.running = [s for s, members in enumerate(layers) if members]
        self.home: dict[Node, int] = {}
        crossing = depending(graph, _is_parameter) & depending(graph, _is_input)
        self.learning = depending(graph, partial(_is_trained, graph), _has_gradient)
        for node in graph.nodes:
            if node in crossing and not self.inside(node):
                self.home[node] = self.stage_of(node)
        self.last_read = self.last_readers()

    # ------------------------------------------------------------ where a value is made, and where it is read

    def enters(self, node: Node) -> bool:
        """Whether this is what the list of layers is given, and gives to the layers behind."""
        return node.op == "loop_enter" and node.attrs["loop"] == self.path

    def in_body(self, node: Node) -> bool:
        return self.loop is not None and f"{body(node)}.".startswith(f"{self.path}.*")

    def inside(self, node: Node) -> bool:
        """Whether a node belongs to the loop that is cut, and so to every stage that runs a part of it."""
        return self.enters(node) or self.in_body(node)

    def stage_of(self, node: Node) -> int:
        """The first stage that has all that a value is made of, and not before the one that its module belongs to."""
        if node in self.ends.values():
            return self.running[-1]
        made = max((self.home[a] for a in node.operands if a in self.home), default=0)
        return made if _takes_sum(node) else max(made, self.named(plain(node.origin.module)))

    def named(self, module: str) -> int:
        """The stage that names a module, or the innermost one around it: as a layer, or by itself."""
        around = [m for m in self.of_module if module == m or module.startswith(f"{m}.")]
        return self.of_module[max(around, key=len)] if around else 0

    def last_readers(self) -> dict[Node, int]:
        """For each value that may cross, the last stage that reads it."""
        found: dict[Node, int] = {}
        for node in self.graph.nodes:
            for operand in node.operands:
                found[operand] = max(found.get(operand, -1), self.reads_at(node))
        return found | dict.fromkeys(self.graph.outputs, len(self.layers) - 1)

    def reads_at(self, node: Node) -> int:
        """The last stage at which a node reads what does not come out of the loop."""
        if self.enters(node):
            return self.running[0]
        return self.running[-1] if self.in_body(node) else self.home.get(node, -1)

    def arriving(self, stage: int) -> list[Node]:
        """What a stage receives: what the layers carry (a `loop_enter` stands for it), then the rest, in order."""
        carried = [n for n in self.graph.nodes if self.enters(n)] if stage in self.running[1:] else []
        return carried + [n for n, home in self.home.items() if home < stage <= self.last_read.get(n, -1)]

    # ------------------------------------------------------------ one stage

    def stage(self, s: int) -> Stage:
        arriving = {n: self.received(n, i) for i, n in enumerate(self.arriving(s))}
        new: dict[Node, Node] = {n: r for n, r in arriving.items() if not self.enters(n)}
        order: list[Node] = list(arriving.values())
        for node in self.graph.nodes:
            if node in new or not self.belongs(node, s):
                continue
            old = (arriving[node],) if node in arriving else node.args
            if all(a in new for a in old if a in self.home):
                args = tuple(new.get(a, a) if isinstance(a, Node) else a for a in old)
                new[node] = node if args == node.args else replace(node, args=args)
                order.append(new[node])
        last = s == len(self.layers) - 1
        leaving = self.graph.outputs if last else [self.leaving(n) for n in self.arriving(s + 1)]
        graph = with_outputs(self.graph, order, tuple(new[n] for n in leaving))
        return Stage(_without_unread(self.shortened(graph, s)), self.layers[s], last)

    def belongs(self, node: Node, s: int) -> bool:
        """Whether a stage has a node: its own, those of the layers that it runs, and what never crosses."""
        if self.inside(node) or node in self.ends.values():
            return bool(self.layers[s])
        return self.home.get(node, s) == s

    def leaving(self, node: Node) -> Node:
        """What a stage sends where the stage behind receives `node`."""
        return self.ends[node.attrs["slot"]] if self.enters(node) else node

    def received(self, node: Node, index: int) -> Node:
        """The input that stands for a value of the stage before, under the name that its author gave it."""
        sent = self.leaving(node)
        made = sent.operands if self.enters(node) else (sent,)
        names = tuple(dict.fromkeys(word for value in made for word in value.origin.names))
        attrs = {"name": f"{RECEIVED}_{index}", RECEIVED: True, "grad": sent in self.learning}
        origin = replace(node.origin, names=names, module="")
        return Node("input", (), attrs, node.shape, node.dtype, origin, node.axes, None, node.state)

    def shortened(self, graph: Graph, s: int) -> Graph:
        """The loop with the members of this stage, or none of it."""
        if self.loop is None:
            return graph
        if not self.layers[s]:
            return replace(graph, loops={p: loop for p, loop in graph.loops.items() if p != self.path})
        kinds = [self.loop.kinds[i] for i in self.layers[s]]
        kept = sorted(set(kinds))
        part = Loop(self.path, tuple(kept.index(k) for k in kinds), self.layers[s].start)
        return with_bodies(graph, self.loop, part, kept)


def _is_input(node: Node) -> bool:
    return node.op == "input"


def _is_parameter(node: Node) -> bool:
    return node.op == "parameter"


def _is_trained(graph: Graph, node: Node) -> bool:
    return _is_parameter(node) and any(graph.tensors[m].trainable for m in graph.members(node.attrs["name"]))


def _has_gradient(node: Node) -> bool:
    return node.op != "detach" and node.dtype.startswith(("float", "bfloat"))


def _takes_sum(node: Node) -> bool:
    return "forward" in node.attrs and str(node.attrs["from"]) == "P"


def _without_unread(graph: Graph) -> Graph:
    read = reachable(graph.outputs)
    return replace(graph, nodes=tuple(n for n in graph.nodes if n.op != "input" or n in read))
