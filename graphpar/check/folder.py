"""A build in its folder, as far as its text and its plan go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphpar.errors import Diagnostic, GraphparError


def read_build(build: Path) -> tuple[str, dict[str, Any]]:
    """The text of model.py, and plan.json. Raises GraphparError if the folder is no build."""
    fix = f"graphpar compile MODEL SPEC -o {build}"
    missing = [name for name in ("model.py", "plan.json") if not (build / name).is_file()]
    if missing:
        message = f"{build} is no build: it has no {' and no '.join(missing)}"
        raise GraphparError(Diagnostic("no-build", None, message, fix=fix))
    try:
        return (build / "model.py").read_text(encoding="utf-8"), json.loads((build / "plan.json").read_bytes())
    except (OSError, ValueError) as error:
        raise GraphparError(
            Diagnostic("no-build", None, f"{build} cannot be read", why=(str(error),), fix=fix)
        ) from error


def read_schedule(build: Path, plan: Mapping[str, Any]) -> str:
    """The text of schedule.csv, empty for a build without a pipeline. Raises GraphparError if it cannot be read."""
    if not plan.get("pipeline"):
        return ""
    try:
        return (build / "schedule.csv").read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        fix = f"graphpar compile MODEL SPEC -o {build}"
        message = f"{build} is no whole build: its schedule.csv cannot be read"
        raise GraphparError(Diagnostic("no-build", None, message, why=(str(error),), fix=fix)) from error
