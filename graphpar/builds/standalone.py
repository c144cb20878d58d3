"""The runtime as part of a build, so that the build needs torch and nothing of graphpar."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import graphpar

PACKAGE = "graphpar_runtime"
_IMPORT = re.compile(r"^(\s*(?:from|import) )graphpar\.runtime\b", re.MULTILINE)


def with_runtime(files: Mapping[str, str]) -> dict[str, str]:
    """The files of a build and of the runtime, which all import the runtime from the build's own folder."""
    folder = Path(graphpar.__file__).parent / "runtime"
    runtime = {
        f"{PACKAGE}/{path.relative_to(folder).as_posix()}": path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }
    return {name: own_imports(text) if name.endswith(".py") else text for name, text in {**files, **runtime}.items()}


def own_imports(text: str) -> str:
    """A program whose imports of `graphpar.runtime` are imports of the copy."""
    return _IMPORT.sub(rf"\1{PACKAGE}", text)
