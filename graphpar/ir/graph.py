"""Nodes and graphs.

A node computes one tensor. Nodes are immutable and compared by identity; a graph is a topologically ordered tuple of
nodes. A block that the model repeats is present once: `loop_enter` carries a value into the body, `loop_leave` out of
it, and the graph's `loops` say how often, and which body (kind) runs in which iteration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import sympy

if TYPE_CHECKING:
    from graphpar.ir.axes import Axis
    from graphpar.ir.states import State
    from graphpar.language.schema import LayoutRule

Size: TypeAlias = "int | sympy.Expr"
Scalar: TypeAlias = "bool | int | float | str | sympy.Expr | None"
Arg: TypeAlias = "Node | Scalar"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: the module that computed it, the source line, and what the author called it."""

    module: str = ""
    file: str = ""
    line: int = 0
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.file else "?"
        return f"{place} ({self.module})" if self.module else place


@dataclass(frozen=True, slots=True)
class Cause:
    """What an op does along a mesh axis, and the rule of the spec that asks for it.

    `role` says what that op is to the node that has this cause: `own`, the node itself; `made`, what gave the value the
    state that it comes in; `needed`, what reads it in another one; `use`, what leaves a parameter's gradient a summand.
    `how` is `cut` where the op has its part of `dim`, `summed` where it adds up its part of `dim`, and `whole` where no
    rule cuts it along the axis.
    """

    role: str
    axis: str
    how: str
    op: str
    origin: Origin
    dim: str | None = None
    rule: LayoutRule | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One tensor: `op(*args, **attrs)`, its global shape and dtype.

    After naming, `axes` are its named axes and `operand_axes` the axes under which the op sees each operand (they
    differ from the operand's own axes where the op renames, as attention does with the keys' seq).
    After placement, `state` is its state per mesh axis, and `causes` say why.
    """

    op: str
    args: tuple[Arg, ...] = ()
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shape: tuple[Size, ...] = ()
    dtype: str = "float32"
    origin: Origin = Origin()
    axes: tuple[Axis, ...] | None = None
    operand_axes: tuple[tuple[Axis, ...] | None, ...] | None = None
    state: Mapping[str, State] | None = None
    note: str = ""
    causes: tuple[Cause, ...] = ()

    @property
    def operands(self) -> tuple[Node, ...]:
        """The tensors among the arguments."""
        return tuple(a for a in self.args if isinstance(a, Node))

    @property
    def named(self) -> tuple[Axis, ...]:
        """The named axes; none before naming."""
        return self.axes or ()

    @property
    def views(self) -> tuple[tuple[Axis, ...] | None, ...]:
        """The axes under which the op sees each operand; none before naming."""
        return self.operand_axes or ()

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def ragged(self) -> bool:
        """Whether the value has rows by expert, as many for each as the data says; after naming."""
        return any(axis.ragged for axis in self.named)

    def __repr__(self) -> str:
        return f"<{self.op} {list(self.shape)} {self.origin}>"


@dataclass(frozen=True, slots=True)
class Loop:
    """A module list whose members run one after another: `kinds[i]` is the body that iteration i runs.

    A stage of a pipeline runs a part of the list: `first` is the index of its first member.
    """

    path: str
    kinds: tuple[int, ...]
    first: int | None = None

    def part(self, kind: int) -> str:
        """The path component that stands for every member of one kind: `*`, or `*0`, `*1` when bodies differ."""
        return f"*{kind}" if len(set(self.kinds)) > 1 else "*"

    def members(self, part: str) -> tuple[int, ...]:
        """The indices of the members that `part` stands for."""
        return tuple(i for i, kind in enumerate(self.kinds, self.first or 0) if self.part(kind) == part)


@dataclass(frozen=True, slots=True)
class Tensor:
    """A parameter or buffer of the source model."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool = True
    persistent: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the source: its class, and whether the class is torch's own."""

    path: str
    cls: str
    module: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A program of nodes, valid between any two passes (`graphpar.ir.verify`)."""

    nodes: tuple[Node, ...]
    outputs: tuple[Node, ...]
    loops: Mapping[str, Loop] = field(default_factory=dict[str, Loop])
    modules: Mapping[str, Module] = field(default_factory=dict[str, Module])
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    recomputed: Mapping[str, bool | str] = field(default_factory=dict[str, "bool | str"])  # paths of bodies

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The model's inputs, in call order."""
        return tuple(n for n in self.nodes if n.op == "input")

    def users(self) -> dict[Node, list[Node]]:
        """For each node, the nodes that read it, in order (once per reading node)."""
        found: dict[Node, list[Node]] = {n: [] for n in self.nodes}
        for node in self.nodes:
            for operand in dict.fromkeys(node.operands):
                found[operand].append(node)
        return found

    def lists(self) -> dict[str, int]:
        """The lists of modules by path, with their lengths."""
        parts = (path.rpartition(".") for path in self.modules)
        lengths = Counter(parent for parent, _, last in parts if last.isdigit())
        return {**lengths, **{path: len(loop.kinds) for path, loop in self.loops.items()}}

    def aliases(self) -> dict[str, str]:
        """`layers` is the first list that runs as a loop, or else the longest of the outermost lists."""
        lists = self.lists()
        outermost = sorted(lists, key=lambda path: (path.count("."), -lists[path]))
        found = [*self.loops, *outermost]
        return {"layers": found[0]} if found else {}

    def members(self, path: str) -> tuple[str, ...]:
        """The source paths that a path with `*` parts stands for."""
        paths = [""]
        for part in plain(path).split("."):
            grown: list[str] = []
            for prefix in paths:
                indices = self.loops[wild].members(part) if (wild := self._loop_at(prefix, part)) else ()
                steps = [str(i) for i in indices] if wild else [part]
                grown += [f"{prefix}.{s}" if prefix else s for s in steps]
            paths = grown
        return tuple(paths)

    def _loop_at(self, prefix: str, part: str) -> str | None:
        return prefix if part.startswith("*") and prefix in self.loops else None


def plain(path: str) -> str:
    """A module's path without the numbers of its calls."""
    return re.sub(r"@\d+", "", path)


def ancestors(path: str) -> list[str]:
    """The path of the model, of each module on the way to a module, and its own."""
    parts = path.split(".") if path else []
    return [".".join(parts[:i]) for i in range(len(parts) + 1)]


def body_path(path: str) -> str:
    """The innermost body of a loop that a module lies in: a path that ends in `*`, `*0`, ..; or nothing."""
    parts = path.split(".")
    last = max((i for i, part in enumerate(parts) if part.startswith("*")), default=-1)
    return ".".join(parts[: last + 1])


def rebuild(graph: Graph, rule: Callable[[Node], Node | None]) -> Graph:
    """Apply `rule` to every node, operands first; a node it returns takes the old one's place.

    The rule sees nodes whose operands have already been replaced. Nodes that no output needs are dropped, except
    inputs.
    """
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        args = tuple(new[a] if isinstance(a, Node) else a for a in node.args)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        candidate = node if same else replace(node, args=args)
        new[node] = rule(candidate) or candidate
    return with_outputs(graph, new.values(), tuple(new[o] for o in graph.outputs))


def with_outputs(graph: Graph, order: Iterable[Node], outputs: tuple[Node, ...]) -> Graph:
    """The graph of what `outputs` need, in the given order as far as operands allow; inputs are kept."""
    needed = reachable(outputs)
    placed: dict[Node, None] = {}
    for node in (*order, *outputs):
        if node in needed or node.op == "input":
            _place(node, placed)
    return replace(graph, nodes=tuple(placed), outputs=outputs)


def depending(graph: Graph, first: Callable[[Node], bool], through: Callable[[Node], bool] | None = None) -> set[Node]:
    """Some nodes and every node that depends on one of them, as far as `through` lets it pass."""
    found: set[Node] = set()
    for node in graph.nodes:
        passes = through is None or through(node)
        if first(node) or (passes and not found.isdisjoint(node.operands)):
            found.add(node)
    return found


def reachable(outputs: Iterable[Node]) -> set[Node]:
    """Every node that some output depends on."""
    found: set[Node] = set()
    stack = list(outputs)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.operands)
    return found


def _place(node: Node, placed: dict[Node, None]) -> None:
    stack = [node]
    while stack:
        top = stack[-1]
        missing = [a for a in top.operands if a not in placed]
        if missing:
            stack.extend(reversed(missing))
        else:
            placed[stack.pop()] = None
