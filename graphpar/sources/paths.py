"""Paths as a person would write them."""

from __future__ import annotations

from pathlib import Path


def shown(file: str | Path) -> str:
    """A path from the working directory if it is below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
