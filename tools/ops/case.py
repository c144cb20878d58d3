"""One call of an op: how torch is called, the operands, and the node that graphpar makes of the call."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from graphpar.ir.graph import Node

KINDS = {"?": "mask", "+": "positive", "#": "digits", "~": "holes"}
UNEVEN = 9  # the size of a dimension that is a vocabulary, which may be padded
SPARE = 4  # summands of an operand that is a pending sum


@dataclass(frozen=True)
class Operand:
    """A leaf: its name, its dimensions (each with the factors that it is to have), and what its values are.

    `kind` is `real`, `positive`, `digits` (numbers that repeat), `holes` (some are no number), `mask`, or `ids` below a
    bound.
    """

    name: str
    dims: tuple[tuple[int, ...], ...]
    kind: str = "real"
    below: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its dimensions."""
        return tuple(prod(d) for d in self.dims)

    @property
    def dtype(self) -> str:
        """The dtype that its node declares; values of float32 are computed in float64."""
        return {"mask": "bool", "ids": "int64"}.get(self.kind, "float32")

    @property
    def real(self) -> bool:
        """Whether it has a gradient, and may be a pending sum."""
        return self.dtype == "float32"

    def draw(self, random: torch.Generator, parts: int = 0) -> Tensor:
        """Random values, with `parts` summands in front if asked for."""
        shape = (parts, *self.shape) if parts else self.shape
        if self.kind == "ids":
            return torch.randint(self.below, shape, generator=random)
        if self.kind == "digits":
            return torch.randint(3, shape, generator=random).double()
        if self.kind == "holes":
            return torch.randn(shape, generator=random, dtype=torch.float64).log()
        if self.kind == "positive":
            return torch.rand(shape, generator=random, dtype=torch.float64) + 0.4
        return torch.randn(shape, generator=random, dtype=torch.float64)


Build = Callable[[Mapping[str, Node]], Node]


@dataclass(frozen=True)
class Case:
    """A call of one op: `call` is the Python expression for torch, of the operands by name and of `sizes`.

    `sizes` stands for the result's shape, for ops that are told it. `args` are the arguments of the node, operands by
    name. `build` makes the node where it takes more than one op to get there.
    """

    op: str
    call: str
    operands: tuple[Operand, ...]
    args: tuple[Any, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dtype: str = "float32"
    build: Build | None = None

    @property
    def id(self) -> str:
        """What the case is called in a report."""
        shapes = ", ".join("x".join(_spelled(d) for d in o.dims) for o in self.operands)
        return f"{self.op}: {self.example} [{shapes}]"

    @property
    def example(self) -> str:
        """The call as a reader would write it."""
        return self.call.replace("sizes", str(self.shape))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of the result."""
        return tuple(self.run(self.values(0), self.attrs.get("shape", ())).shape)

    def run(self, values: Mapping[str, Tensor], sizes: tuple[int, ...] | None = None) -> Tensor:
        """What torch computes. A mask is given as numbers, and holds where they are positive."""
        masks = {o.name: values[o.name] > 0 for o in self.operands if o.kind == "mask"}
        names = {"torch": torch, "F": F, "sizes": self.shape if sizes is None else sizes}
        return eval(self.call, names | dict(values) | masks)

    def values(self, seed: int) -> dict[str, Tensor]:
        """Random operands; the same for the same seed, on every machine."""
        random = torch.Generator().manual_seed(zlib.crc32(self.call.encode()) + seed)
        return {o.name: o.draw(random) for o in self.operands}

    def node(self, leaves: Mapping[str, Node]) -> Node:
        """The node of the call on these operands."""
        if self.build is not None:
            return self.build(leaves)
        args = tuple(leaves[a] if isinstance(a, str) else a for a in self.args)
        attrs = {k: v for k, v in self.attrs.items() if k != "shape"}
        return Node(self.op, args, attrs, self.shape, self.dtype)


def _spelled(dim: tuple[int, ...]) -> str:
    return str(dim[0]) if len(dim) == 1 else f"({' '.join(map(str, dim))})"


def row(op: str, call: str, operands: str, *args: Any, build: Build | None = None, **attrs: Any) -> Case:
    """A case from text: `row("linear", "F.linear(x, w)", "x 4 6; w 10 6", "x", "w", None)`.

    An operand is `name sizes [< bound | kind]`: ids below a bound, `?` a mask, `+` positive numbers, `#` digits, `~`
    numbers with holes. `(2 5)` is a dimension of ten that has these two factors. Without `args` the operands are the
    arguments, in order.
    """
    found = tuple(_operand(text) for text in operands.split(";"))
    dtype = attrs.pop("to", "float32")
    return Case(op, call, found, args or tuple(o.name for o in found), attrs, dtype, build)


def _operand(text: str) -> Operand:
    text, _, bound = text.partition("<")
    name, *words = text.replace("(", " ( ").replace(")", " ) ").split()
    dims: list[tuple[int, ...]] = []
    inside: list[int] | None = None
    kind = "ids" if bound else "real"
    for word in words:
        if word in KINDS:
            kind = KINDS[word]
        elif word == "(":
            inside = []
        elif word == ")":
            dims.append(tuple(inside or ()))
            inside = None
        elif inside is not None:
            inside.append(int(word))
        else:
            dims.append((int(word),))
    return Operand(name, tuple(dims), kind, int(bound or 0))
