"""An order that was searched for, as specs/README.md writes it, is a schedule like any other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled_zoo import told
from deep_zoo import deep

from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.verify.verify import Options, verify

TEXT = (Path(__file__).parents[2] / "specs" / "README.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
SPEC = """\
version: 1
mesh: {pp: 4}
layout: []
pipeline: {axis: pp, schedule: schedule.csv, microbatches: 12}
"""


def test_the_example_writes_a_schedule_that_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(CODE, {})
    origin, spec = deep("nanogpt", 4), parse_spec(SPEC, str(tmp_path / "spec.yaml"))
    built = compile_captured(origin.captured, spec, {"model": "nanogpt", "spec_file": "spec.yaml"})
    assert built.cutting is not None
    assert max(built.cutting.timeline.in_flight(rank) for rank in range(4)) <= 8
    built.write(tmp_path / "build")
    report = verify(tmp_path / "build", origin, spec, Options(capture=False, rows=12, length=6))
    assert report.passed, told(report)
