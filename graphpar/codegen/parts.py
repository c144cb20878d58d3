"""What model.py consists of: one program, or the programs of the stages of a pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from graphpar.codegen.program import Program
from graphpar.codegen.tree import Body


@dataclass(frozen=True)
class Part:
    """One program of a text, from the body of its root.

    Of a stage, `path` is the list of layers that it runs a part of; the classes around that list are the stage's own,
    and their names end with `suffix`. `number` is that of the stage.
    """

    root: Body
    program: Program
    path: str | None = None
    suffix: str = ""
    number: int = 0

    def is_around(self, module: str) -> bool:
        """Whether a module has the layers below it."""
        return self.path is not None and (module == "" or self.path.startswith(f"{module}."))

    def is_given_layers(self, module: str) -> bool:
        """Whether the class of a module is told which layers it runs: where they are a loop."""
        return self.is_around(module) and self.path in self.program.graph.loops
