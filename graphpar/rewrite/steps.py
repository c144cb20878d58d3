"""The steps of a compilation, for whoever watches it: each with its purpose, its time, and the graph on both sides."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from graphpar.ir.graph import Graph

Watch: TypeAlias = Callable[[str, str, Graph], None]  # the name of a step, the module that does it, what it made


def unwatched(name: str, module: str, graph: Graph) -> None:
    """Nobody asks."""


@dataclass(frozen=True)
class Step:
    """One rewrite. `doc` says what it is for; `seconds` are those since the step before, its checks among them."""

    name: str
    doc: str
    seconds: float
    before: Graph
    after: Graph

    @property
    def purpose(self) -> str:
        """The first line of its text."""
        return self.doc.strip().partition("\n")[0]

    def said(self, heading: str) -> str:
        """What its text says under a heading such as `Why`, on one line; nothing if it says nothing there."""
        found = re.search(rf"^{heading}  +(.*?)(?=^\S|\Z)", self.doc, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""


@dataclass
class Record:
    """Keeps the steps that start from a graph. It is a `Watch`."""

    graph: Graph
    steps: list[Step] = field(default_factory=list[Step])
    since: float = field(default_factory=time.perf_counter)

    def __call__(self, name: str, module: str, graph: Graph) -> None:
        """A step is done."""
        now = time.perf_counter()
        taken = any(step.name == name for step in self.steps)  # by a pass of the user, which may be called so
        doc = sys.modules[module].__doc__ or ""
        self.steps.append(Step(f"{name}-2" if taken else name, doc, now - self.since, self.graph, graph))
        self.graph, self.since = graph, now
