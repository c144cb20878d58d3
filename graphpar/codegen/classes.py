"""A class of model.py."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphpar.codegen.program import Line


@dataclass
class Class:
    """One class to be written: the paths it stands for and its text without the name."""

    name: str
    source: str
    paths: list[str]
    lines: list[str]
    imports: set[str]
    places: list[Line | None]
    base: str = "nn.Module"
    stages: list[int] = field(default_factory=list[int])

    def text(self) -> list[str]:
        """Its lines, the head included."""
        named = [", ".join(self.paths), _of_stages(self.stages)]
        doc = [f'    """{" of ".join(filter(None, named))}"""', ""] if any(named) else []
        return [f"class {self.name}({self.base}):", *doc, *self.lines]

    def sources(self) -> list[Line | None]:
        """For each of its lines, what knows where in the source it comes from."""
        return [None] * (len(self.text()) - len(self.lines)) + self.places


def _of_stages(stages: list[int]) -> str:
    """Stages in words: `stage 2`, `stages 1, 4`, `stages 1-6`."""
    runs: list[list[int]] = []
    for stage in stages:
        if runs and stage == runs[-1][-1] + 1:
            runs[-1].append(stage)
        else:
            runs.append([stage])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"stage{'s' if len(stages) > 1 else ''} {', '.join(words)}" if words else ""
