"""A build with stages is drawn with the schedule of its step, from what its plan says alone."""

import json
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest
from compiled_zoo import parsed
from deep_zoo import deep

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.pipeline.cutting import Cutting
from graphpar.viz.command import visualize
from graphpar.viz.gantt import gantt
from graphpar.viz.schedule import schedule

TITLES = {"1f1b": "1f1b: 2 stages on 2 ranks, 4 microbatches", "zbv": "zbv: 4 stages on 2 ranks, 4 microbatches"}


class Made(NamedTuple):
    folder: Path
    cutting: Cutting | None

    @property
    def plan(self):
        return json.loads((self.folder / "plan.json").read_text())


def make(folder, mesh, **pipeline):
    spec = {"version": 1, "mesh": mesh, "layout": []}
    if pipeline:
        spec["pipeline"] = {"axis": "pp", "microbatches": 4, **pipeline}
    made = compile_captured(deep("nanogpt", 4).captured, parsed(spec), {"model": "nanogpt", "spec_file": "spec.yaml"})
    made.write(folder)
    return Made(folder, made.cutting)


@pytest.fixture(scope="module", params=TITLES)
def made(request, tmp_path_factory):
    return make(tmp_path_factory.mktemp("builds") / request.param, {"pp": 2}, schedule=request.param)


def test_it_is_the_timeline_that_the_compiler_told(made):
    plan = made.plan
    assert schedule(plan) == gantt(made.cutting.timeline, TITLES[plan["pipeline"]["schedule"]], "pp")


def test_the_plan_says_the_work_of_each_stage(made):
    work = [stage["work"] for stage in made.plan["pipeline"]["stages"]]
    assert work == list(made.cutting.work) and min(work) > 0


def test_longer_stages_have_longer_boxes(made):
    plan = made.plan
    plan["pipeline"]["stages"][0]["work"] *= 3
    changed = schedule(plan)
    assert "0F0: forward of stage 0, microbatch 0, from 0.00 to 1.00" in changed
    assert changed != schedule(made.plan)


@pytest.mark.parametrize("dot", [True, False], ids=["dot", "no dot"])
def test_it_lies_beside_the_graph(made, dot, monkeypatch, tmp_path):
    if not dot:
        monkeypatch.setenv("PATH", str(tmp_path))
    elif shutil.which("dot") is None:
        pytest.skip("graphviz's dot is not installed")
    written = visualize(made.folder)
    graphs = ["graph.svg", "graph.html"] if dot else ["graph.dot", "graph.html"]
    assert [file.name for file in written.files] == [*graphs, "schedule.svg"]
    assert (made.folder / "schedule.svg").read_text() == schedule(made.plan)


def test_who_names_files_gets_no_other(made, tmp_path):
    shutil.copytree(made.folder, tmp_path / "build", ignore=shutil.ignore_patterns("*.svg"))
    written = visualize(tmp_path / "build", [tmp_path / "a.html"])
    assert [file.name for file in written.files] == ["a.html"]
    assert not list(tmp_path.rglob("*.svg"))


def test_the_page_has_it(made, tmp_path):
    visualize(made.folder, [tmp_path / "a.html"])
    told = document_of(tmp_path / "a.html")["schedule"]
    assert told["svg"] == schedule(made.plan)
    boxes = re.findall(r"<title>(\d+[FBIW]\d+): ", told["svg"])
    assert [run["action"] for run in told["runs"]] == boxes and boxes


def document_of(page):
    (text,) = re.findall(r'<script type="application/json" id="build">(.*?)</script>', page.read_text())
    return json.loads(text)


def test_a_build_without_stages_has_none(tmp_path):
    made = make(tmp_path, {"dp": 1})
    assert schedule(made.plan) is None
    assert "schedule.svg" not in [file.name for file in visualize(made.folder).files]
    assert document_of(made.folder / "graph.html")["schedule"] is None


def _reversed(order):
    order["1"].reverse()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda order: order["0"].insert(0, "0X0"), "`0X0` is no action"),
        (lambda order: order["0"].append("7F0"), "it stands still: rank 0 waits at"),
        (_reversed, "it stands still: rank 0 waits at"),
    ],
    ids=["no action", "no stage", "no end"],
)
def test_an_order_that_somebody_broke_is_told(change, said, tmp_path):
    plan = make(tmp_path, {"pp": 2}, schedule="1f1b").plan
    change(plan["pipeline"]["order"])
    with pytest.raises(GraphparError) as refused:
        schedule(plan)
    (told,) = refused.value.diagnostics
    assert told.code == "broken-order"
    assert said in told.why[0]
