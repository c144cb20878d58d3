"""Figures for reports: their numbers are those of the plan and of the run, and their bytes the same each time."""

import json
import re
import shutil
from itertools import pairwise

import pytest
from click.testing import CliRunner
from compiled_zoo import parsed
from deep_zoo import deep

from graphpar.cli import main
from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.explain.memory import memory, spell
from graphpar.viz.figure import KINDS, draw_figure
from graphpar.viz.figure_memory import bars_of
from graphpar.viz.schedule import schedule

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("builds") / "stages"
    pipeline = {"axis": "pp", "microbatches": 4, "schedule": "1f1b"}
    spec = {"version": 1, "mesh": {"pp": 2, "tp": 2}, "layout": [{"heads": "tp"}], "pipeline": pipeline}
    made = compile_captured(deep("nanogpt", 4).captured, parsed(spec), {"model": "nanogpt", "spec_file": "spec.yaml"})
    made.write(folder)
    return folder


@pytest.fixture(scope="module")
def plan(build):
    return json.loads((build / "plan.json").read_text())


@pytest.fixture
def metrics(tmp_path):
    lines = [{"step": s, "loss": 4.0 - s / 10, "lr": 1e-3} for s in range(20)]
    lines.insert(10, {"step": 9, "held_out_loss": 3.5})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "metrics.jsonl"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_same_figure_has_the_same_bytes(kind, suffix, build, metrics, tmp_path):
    files = [tmp_path / f"{n}.{suffix}" for n in "ab"]
    for file in files:
        assert draw_figure(build, kind, [file], metrics) == (file,)
    first, second = (file.read_bytes() for file in files)
    assert first == second
    assert first.startswith({"svg": b"<", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])


def test_a_bar_for_each_place_of_the_pipeline_and_one_for_a_single_device(plan):
    bars = bars_of(plan)
    assert list(bars) == ["pp 0", "pp 1", "one device"]
    assert max(bars["pp 0"].total, bars["pp 1"].total) == memory(plan).total
    assert bars["one device"].parameters == memory(plan).whole
    assert all(bars["one device"].total > bars[place].total for place in ("pp 0", "pp 1"))


def test_ranks_that_hold_the_same_share_a_bar(plan):
    flat = {**plan, "pipeline": None}
    assert list(bars_of(flat)) == ["each of 4 ranks", "one device"]
    assert bars_of(flat)["each of 4 ranks"] == memory(flat)


def test_bars_are_as_long_as_what_they_say(plan):
    from matplotlib.figure import Figure

    from graphpar.viz import figure_memory

    drawn = Figure()
    axes = figure_memory.memory(plan)(drawn)
    bars = bars_of(plan)
    most = max(held.total for held in bars.values())
    ends = [
        max(p.get_x() + p.get_width() for p in axes.patches if abs(p.get_y() + p.get_height() / 2 - row) < 0.1)
        for row in range(3)
    ]
    assert ends == pytest.approx([held.total / most for held in bars.values()])
    assert [text.get_text() for text in axes.texts] == [spell(held.total) for held in bars.values()]


def test_every_action_of_the_schedule_has_a_box_of_its_own(build, plan):
    from matplotlib.figure import Figure

    from graphpar.viz.figure_schedule import gantt_figure

    axes = gantt_figure(build, plan)(Figure())
    order = plan["pipeline"]["order"]
    assert len(axes.patches) == sum(map(len, order.values()))
    for rank, words in order.items():
        row = [p for p in axes.patches if abs(p.get_y() + p.get_height() / 2 - int(rank)) < 0.1]
        spans = sorted((p.get_x(), p.get_x() + p.get_width()) for p in row)
        assert len(spans) == len(words) and all(a[1] <= b[0] + 1e-9 for a, b in pairwise(spans))


def test_the_schedule_as_svg_is_the_one_that_lies_beside_the_graph(build, plan, tmp_path):
    draw_figure(build, "schedule", [tmp_path / "a.svg"])
    assert (tmp_path / "a.svg").read_text() == schedule(plan)


def test_the_curves_are_those_of_the_run(build, plan, metrics):
    from matplotlib.figure import Figure

    from graphpar.viz.figure_loss import loss

    axes = loss(build, plan, metrics)(Figure())
    training, held_out = axes.lines
    assert list(training.get_ydata()) == pytest.approx([4.0 - s / 10 for s in range(20)])
    assert (list(held_out.get_xdata()), list(held_out.get_ydata())) == ([9], [3.5])
    assert str(metrics) in axes.get_title(loc="left") + axes.get_title()


@pytest.mark.parametrize("text", [None, "", "no json\n", '{"step": 3, "held_out_loss": 1.0}\n', "[1]\n"])
def test_without_a_run_it_says_what_to_run(build, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "metrics.jsonl").write_text(text)
    with pytest.raises(GraphparError) as refused:
        draw_figure(build, "loss")
    (told,) = refused.value.diagnostics
    assert told.code == "no-run" and re.match(r"torchrun --standalone --nproc-per-node 4 .*train\.py", told.fix)
    assert "run/metrics.jsonl" in told.message


def test_a_build_without_stages_has_no_schedule(tmp_path):
    spec = parsed({"version": 1, "mesh": {"dp": 2}, "layout": [{"batch": "dp"}]})
    source = {"model": "nanogpt", "spec_file": "spec.yaml"}
    compile_captured(deep("nanogpt", 4).captured, spec, source).write(tmp_path / "flat")
    with pytest.raises(GraphparError, match="no-schedule"):
        draw_figure(tmp_path / "flat", "schedule")


def test_the_command(build, tmp_path):
    shutil.copytree(build, tmp_path / "build")
    said = CliRunner().invoke(main, ["visualize", str(tmp_path / "build"), "--figure", "memory"])
    assert said.exit_code == 0 and said.stdout == f"wrote {tmp_path / 'build' / 'memory.svg'}\n"
    both = CliRunner().invoke(main, ["visualize", str(tmp_path / "build"), "--figure", "memory", "--step", "place"])
    assert both.exit_code == 2
    wrong = CliRunner().invoke(main, ["visualize", str(tmp_path / "build"), "--figure", "memory", "-o", "a.html"])
    assert wrong.exit_code == 2 and "unknown-picture" in wrong.stderr
