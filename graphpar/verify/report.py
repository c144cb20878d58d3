"""What verification found: a list of checks, and the first value that differs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from graphpar.errors import Diagnostic, GraphparError, Note, Span

Outcome = Literal["exact", "ok", "failed", "skipped"]


@dataclass(frozen=True)
class Check:
    """One claim and what came of it. `error` is the largest relative difference, where there is one."""

    name: str
    outcome: Outcome
    compared: str = ""  # what and how much
    error: float | None = None
    limit: float | None = None
    detail: str = ""  # where it is worst, or why it failed or was skipped


@dataclass(frozen=True)
class Difference:
    """The first value that is not what it should be."""

    what: str  # "hidden_states in transformer.h.0.mlp"
    how: str  # "differs by 3.1e-01 of its largest element"
    ranks: tuple[int, ...]
    line: int | None  # in model.py
    code: str
    axes: str  # the named axes behind the line
    lines: tuple[int, ...]  # where the cause is: what lies between this value and those that agree
    source: str | None  # file:line of the source model

    def note(self, file: Path) -> Note:
        """The difference as a part of a diagnostic."""
        facts = [self.how]
        facts += [f"ranks {' '.join(map(str, self.ranks))}"] if self.ranks else []
        facts += [f"axes {self.axes}"] if self.axes else []
        facts += [f"source {self.source}"] if self.source else []
        if self.lines and self.lines != (self.line,):
            facts.append(f"the cause is in line {' or '.join(map(str, self.lines))}")
        span = Span(str(file), self.line, 1) if self.line else None
        return Note(f"first difference: {self.what}; {'; '.join(facts)}", span)


@dataclass
class Report:
    """Everything that was checked for one build."""

    build: Path
    mesh: dict[str, int]
    sizes: str
    seed: int
    checks: list[Check] = field(default_factory=list[Check])
    first: Difference | None = None
    seconds: float = 0.0

    @property
    def failures(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.outcome == "failed"]

    @property
    def passed(self) -> bool:
        """Whether none failed."""
        return not self.failures

    def add(self, *checks: Check) -> None:
        """Record checks."""
        self.checks += checks

    def diagnostic(self) -> Diagnostic:
        """The failures as one mistake."""
        worst = tuple(_line(check) for check in self.failures)
        unproven = tuple(f"not proven: {c.detail}" for c in self.checks if c.name == "text" and c.outcome == "skipped")
        file = self.build / "model.py"
        count = f"{len(worst)} of {len(self.checks)} checks failed"
        mesh = " x ".join(f"{axis}={size}" for axis, size in self.mesh.items())
        span = Span(str(file), self.first.line, 1) if self.first and self.first.line else None
        notes = (self.first.note(file),) if self.first else ()
        message = f"on mesh {mesh} the build does not compute what the source model computes: {count}"
        return Diagnostic("verify", span, message, why=(*worst, *unproven), notes=notes, kind="check")

    def raise_if_failed(self) -> None:
        """Raise GraphparError with everything that failed."""
        if not self.passed:
            raise GraphparError(self.diagnostic())

    def json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "passed": self.passed,
            "build": str(self.build),
            "mesh": self.mesh,
            "sizes": self.sizes,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "checks": [asdict(check) for check in self.checks],
            "first_difference": asdict(self.first) if self.first else None,
        }


def _line(check: Check) -> str:
    error = f"{check.error:.1e} > {check.limit:.0e}" if check.error is not None and check.limit is not None else ""
    return f"{check.name}: {'; '.join(part for part in (error, check.detail) if part)}"
