"""The command line, run in this process, and what it said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from graphpar.cli import main

MODELS = Path(__file__).parent / "models"


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str


def graphpar(*arguments: str | Path) -> Said:
    """Run `graphpar` with these arguments. What it raises beyond SystemExit is raised here."""
    result = CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
    return Said(result.exit_code, result.stdout, result.stderr)
