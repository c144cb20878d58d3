"""The parts of the demo; the whole of it is `make demo`."""

import json
import sys
import time

import pytest
from click.testing import CliRunner

from graphpar.demo import steps
from graphpar.demo.command import command
from graphpar.demo.material import NotOursError, prepare
from graphpar.demo.results import Losses, read_losses, side_by_side, worth_reading
from graphpar.demo.steps import Step, StepError, run


@pytest.fixture
def python(monkeypatch):
    """Steps that run this Python."""
    monkeypatch.setitem(steps.PROGRAMS, "python", (sys.executable,))


def test_the_configuration_is_one_of_the_library(tmp_path):
    from transformers import AutoConfig

    material = prepare(tmp_path / "demo")
    written = json.loads((material.model / "config.json").read_text())
    config = AutoConfig.from_pretrained(material.model)
    assert config.architectures == written["architectures"]
    assert {k: getattr(config, k) for k in written} == written


def test_the_text_is_python_and_the_same_each_time(tmp_path):
    first, second = prepare(tmp_path / "a"), prepare(tmp_path / "b")
    assert first.text.read_bytes() == second.text.read_bytes()
    assert first.text.stat().st_size > 1_000_000
    assert b"import " in first.text.read_bytes()[:20_000]


def test_a_second_run_replaces_what_the_first_made(tmp_path):
    prepare(tmp_path / "demo")
    (tmp_path / "demo" / "left over").touch()
    prepare(tmp_path / "demo")
    assert not (tmp_path / "demo" / "left over").exists()


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(NotOursError):
        prepare(tmp_path)
    result = CliRunner().invoke(command, ["-o", str(tmp_path)])
    assert result.exit_code == 2
    assert "left as it is" in result.output
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_step_that_fails_stops_the_demo(python):
    with pytest.raises(StepError, match="failed with exit code 3"):
        run(Step(("python", "-c", "raise SystemExit(3)"), 60))


def test_a_step_that_takes_too_long_is_stopped_with_all_it_started(python):
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
    start = time.monotonic()
    with pytest.raises(StepError, match="took more than 1 seconds"):
        run(Step(("python", "-c", program), 1))
    assert time.monotonic() - start < 15


def test_the_losses_are_read_from_the_metrics(tmp_path):
    lines = [{"step": i, "loss": 6.0 - i} for i in range(4)] + [{"step": 3, "held_out_loss": 3.5}]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    losses = read_losses(tmp_path / "metrics.jsonl")
    assert (losses.first, losses.last, losses.held_out) == (6.0, 4.5, 3.5)


def test_two_runs_are_compared_up_to_the_step_whose_rate_differs(tmp_path):
    for name, rates in (("a", (1.0, 2.0, 3.0, 2.5)), ("b", (1.0, 2.0, 2.9))):
        lines = [{"step": i, "loss": 6.0 - i, "lr": rate} for i, rate in enumerate(rates)] + [{"held_out_loss": 3.5}]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
    assert side_by_side(tmp_path / "a", tmp_path / "b") == [(6.0, 6.0), (5.0, 5.0), (4.0, 4.0)]
    assert len(side_by_side(tmp_path / "a", tmp_path / "a")) == 4


def test_a_falling_loss_is_a_falling_line():
    assert Losses((8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0), 1.0).curve(8) == "█▇▆▅▄▃▂▁"
    assert Losses((2.0,), 2.0).curve(8) == "▁"


def test_the_class_to_show_is_the_shortest_that_communicates_both_ways():
    forward = "    def forward(self, x):\n        x = all_gather(x)\n{}        return reduce_scatter(x)\n"
    program = "\n\n".join(
        f"class {name}(nn.Module):\n{forward.format('        x = x + 1' + chr(10) if name == 'Long' else '')}"
        for name in ("Long", "Short")
    )
    assert worth_reading(program, ("all_gather", "reduce_scatter")).startswith("class Short")
    assert worth_reading(program, ("all_to_all",)) == ""
