"""A mixture of experts that almost has the form that is recognised is told what breaks it."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphpar.builds.make import make
from graphpar.errors import GraphparError

PLAIN = Path(__file__).parents[1] / "models" / "moe_plain.py"
SPEC = "version: 1\nmesh: {ep: 2}\nlayout:\n  - batch: ep\nmoe:\n  experts: ep\n"
LINE = "        y = y * weight.reshape(-1)[order].unsqueeze(-1)"


@pytest.mark.parametrize(
    ("line", "op"),
    [
        (f"{LINE}.cumsum(0)".replace("y = y", "y = (y").replace("(-1).cumsum", "(-1)).cumsum"), "cumsum"),
        (f"{LINE}\n        y = y - y.mean(dim=0)", "mean"),
    ],
)
def test_what_takes_rows_together_is_named(line: str, op: str, tmp_path: Path) -> None:
    text = PLAIN.read_text()
    assert LINE in text
    (tmp_path / "almost.py").write_text(text.replace(LINE, line))
    (tmp_path / "spec.yaml").write_text(SPEC)
    with pytest.raises(GraphparError) as told:
        make(f"{tmp_path / 'almost.py'}:tiny", str(tmp_path / "spec.yaml"), tmp_path / "build")
    (found,) = {(d.code, d.message.split("`")[1]) for d in told.value.diagnostics}
    assert found == ("almost-experts", op)
