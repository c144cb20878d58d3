"""What every body needs to know of the whole program, and what a written method consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphpar.codegen.local import Cuts, cuts
from graphpar.ir.axes import Axis, Factor, spell_all
from graphpar.ir.graph import Cause, Graph, Node, Origin
from graphpar.ir.states import Partial


@dataclass(frozen=True)
class Program:
    """What every body needs to know of the whole: graph, mesh sizes, the order in which mesh axes cut a factor."""

    graph: Graph
    mesh: Mapping[str, int]
    order: Callable[[int], Sequence[str]]
    users: Mapping[Node, Sequence[Node]]
    exact: bool = False  # whether random numbers are those of one device

    def cuts(self, node: Node) -> Cuts:
        """The cuts of a value."""
        return cuts(node, self.mesh, self.order)

    def shape(self, node: Node) -> str:
        """The named local shape of a value, with what is still pending."""
        text = spell_all(tuple(map(_sized, node.named)), self.cuts(node).marks()) or "scalar"
        pending = [a for a, s in (node.state or {}).items() if isinstance(s, Partial) and self.mesh[a] > 1]
        return f"{text}   partial({', '.join(pending)})" if pending else text


@dataclass
class Line:
    """One line of code with the shape and the reason that stand behind it."""

    code: str
    shape: str = ""
    reason: str = ""
    indent: int = 2
    origin: Origin | None = None
    causes: tuple[Cause, ...] = ()


@dataclass
class Forward:
    """A written forward method, and what the class needs for it."""

    arguments: list[str]
    lines: list[Line]
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    streams: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    imports: set[str] = field(default_factory=set[str])
    result: str = ""


def _sized(axis: Axis) -> Axis:
    """The axis with sizes in place of factors that have no name."""
    return Axis(tuple(tuple(map(_named, segment)) for segment in axis.segments))


def _named(factor: Factor) -> Factor:
    return replace(factor, name=str(factor.size).replace(" ", "")) if factor.name.startswith("?") else factor
