"""The modules of a program, from its text."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graphpar.check.dims import Wrong


@dataclass(frozen=True)
class Namespace:
    """Something that the text imports, under its dotted name: torch, F, or a function of the runtime."""

    name: str


@dataclass(frozen=True)
class Text:
    """The classes of a program, and what it imports."""

    classes: Mapping[str, Mapping[str, ast.FunctionDef]]  # class -> method -> definition
    names: Mapping[str, Namespace]


@dataclass(eq=False)
class Module:
    """A module: its class, where it is in the tree, and its attributes."""

    cls: str
    path: str
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])

    def get(self, name: str) -> Any:
        """An attribute. Raises Wrong if there is none."""
        if name not in self.attributes:
            raise Wrong(f"{self.path or self.cls} has no {name}")
        return self.attributes[name]


@dataclass(frozen=True)
class Method:
    """A method of a module, not yet called."""

    owner: Module
    name: str


@dataclass(frozen=True)
class Deferred:
    """A lambda without arguments: its expression, and what that refers to."""

    body: ast.expr
    scope: Mapping[str, Any]


@dataclass(frozen=True)
class Declared:
    """A declared parameter or buffer: local shape, and over which axes it is sharded and its gradient a summand."""

    shape: tuple[int, ...]
    sharded: frozenset[str]
    grad_sum: frozenset[str]
    trainable: bool
    line: int


def read(text: str) -> Text:
    """The classes and imports of a program. Raises SyntaxError if it is no Python."""
    tree = ast.parse(text)
    classes = {
        node.name: {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    names: dict[str, Namespace] = {}
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name] = Namespace(_short(alias.name))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                runtime = "runtime" in (node.module or "")
                name = alias.name if runtime else f"{_short(node.module or '')}.{alias.name}"
                names[alias.asname or alias.name] = Namespace(name)
    return Text(classes, names)


def _short(module: str) -> str:
    return "F" if module == "torch.nn.functional" else module
