"""What a picture of a build shows, whatever it is drawn with: modules, statements, collectives, and what flows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

_NUMBER = re.compile(r"\.(\d+|\*)(?=\.|$)|\[[\d:., ]+\]")


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer that a statement reads: its name within the module, its named axes, and its sizes."""

    name: str
    full_name: str
    axes: str
    here: tuple[int, ...]
    whole: tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One statement, with the named axes of its result. `depth` is 1 in a module that is written into its caller."""

    line: int
    code: str
    axes: str
    pending: str
    weights: tuple[Weight, ...] = ()
    depth: int = 0
    title: str = ""  # of the module whose call this is


@dataclass(frozen=True)
class Compute:
    """Statements that follow each other without any communication."""

    id: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Exchange:
    """A collective, and the one that its gradient takes. `elements` is an expression in batch and seq."""

    id: str
    row: Row
    axis: str
    forward: str | None
    forward_elements: str | None
    backward: str | None
    backward_elements: str | None
    width: int  # bytes per element
    twice: bool  # whether it runs once more in the backward pass, before its backward
    reason: str
    rule: str  # "heads: tp, line 7 of the spec"
    inside: str  # the function that does it, if the statement does more than to hand its operand through
    entry: Mapping[str, Any] = field(default_factory=dict[str, Any], compare=False, repr=False)  # of the plan

    @property
    def why(self) -> str:
        """What it is for, and the rule of the spec that asked for it."""
        return f"{self.reason} ({self.rule})" if self.rule else self.reason


@dataclass(frozen=True)
class Module:
    """A module with the items of its forward method. `members` says how often and for which members it runs.

    `arguments` are those of its forward method, each with the nodes that it comes from.
    """

    id: str
    path: str
    cls: str
    members: str
    items: tuple[Item, ...]
    arguments: tuple[Argument, ...] = ()

    @property
    def times(self) -> int:
        """How many members it stands for."""
        return int(self.members.removeprefix("× ") or 1)

    def rows(self) -> Iterator[Row]:
        """The rows of every table here and below."""
        for item in self.items:
            match item:
                case Compute():
                    yield from item.rows
                case Module():
                    yield from item.rows()
                case Exchange():
                    pass


@dataclass(frozen=True)
class Value:
    """An input of the model, or its result."""

    id: str
    name: str
    axes: str
    pending: str = ""


Makers: TypeAlias = "tuple[tuple[str, str], ...]"  # the nodes that a value comes from, and its axes there
Argument: TypeAlias = "tuple[str, Makers]"
Item: TypeAlias = "Compute | Exchange | Module"


@dataclass(frozen=True)
class Edge:
    """A value that flows from one node to another, with its named axes and what is pending."""

    tail: str
    head: str
    axes: str = ""


@dataclass(frozen=True)
class Picture:
    """Everything that is drawn."""

    plan: Mapping[str, Any]
    inputs: tuple[Value, ...]
    root: Module
    result: Value
    edges: tuple[Edge, ...]

    @property
    def mesh(self) -> Mapping[str, int]:
        """Mesh axes and their sizes, outermost first."""
        return self.plan["mesh"]

    def exchanges(self) -> Iterator[tuple[Module, Exchange]]:
        """Every collective that is drawn, with its module, in forward order."""
        return _exchanges(self.root)


def _exchanges(module: Module) -> Iterator[tuple[Module, Exchange]]:
    for item in module.items:
        match item:
            case Exchange():
                yield module, item
            case Module():
                yield from _exchanges(item)
            case Compute():
                pass


def alike(path: str) -> str:
    """A module's path without the number of its layer, or of several."""
    return _NUMBER.sub("#", path)


def spelled(sizes: Sequence[int]) -> str:
    """`64 × 128`."""
    return " × ".join(map(str, sizes)) or "scalar"


def shape(axes: str, pending: str) -> str:
    """Named axes with what is pending behind them."""
    return f"{axes}   {pending}" if pending else axes
