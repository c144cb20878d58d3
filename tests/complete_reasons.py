"""What holds of the reasons of every build that is tested."""

from __future__ import annotations

import json
from pathlib import Path

from graphpar.explain.explained import explained


def assert_complete_reasons(build: Path) -> None:
    """Every collective has reasons, down to lines of the spec of the build that say what they are quoted with."""
    text = (build / "spec.yaml").read_text()
    lines = text.splitlines()
    for one in explained(json.loads((build / "plan.json").read_text()), text, {}).collectives:
        told = f"{one.number} {one.op} over {one.axis}: {one.chain.steps}"
        assert one.chain.complete, told
        assert one.reason and (one.chain.forward or one.chain.backward), told
        for rule in one.chain.rules:
            assert lines[rule.build_line - 1].strip() == rule.quoted, told
            assert rule.quoted.strip(" -").split(":")[0] == rule.text.split(":")[0], told
