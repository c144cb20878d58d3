"""`graphpar visualize BUILD --step PASS`: what a pass did, of a build that is still that of its model."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from graphpar.builds.again import compile_again
from graphpar.cli import main
from graphpar.errors import GraphparError
from graphpar.ir.difference import difference
from graphpar.ir.graph import Node
from graphpar.viz.layers import once
from graphpar.viz.neighbours import neighbours
from graphpar.viz.step import dot_of, draw_step

MODELS = Path(__file__).parents[1] / "models"
TEXTS = Path(__file__).parent / "texts"
SPEC = "version: 1\nmesh: {dp: 2, tp: 2}\nlayout:\n  - batch: dp\n  - heads: tp\n  - d_ff: tp\n  - vocab: tp\n  - seq: tp\n"
EXPERTS = "version: 1\nmesh: {ep: 2}\nlayout:\n  - batch: ep\nmoe: {experts: ep}\n"
OWN = '"""A pass that does nothing.\n"""\n\n\ndef mine(graph):\n    return graph\n'


def run(*arguments):
    result = CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def made(folder, model, spec, *more):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(MODELS / f"{model.partition(':')[0]}", folder)
    (folder / "spec.yaml").write_text(spec)
    code, _, said = run("compile", folder / model, folder / "spec.yaml", "-o", folder / "build", *more)
    assert code == 0, said
    return folder / "build"


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    return made(tmp_path_factory.mktemp("gpt"), "nanogpt.py:tiny", SPEC)


@pytest.fixture(scope="module")
def dots(build):
    """What each step of the build that did something did, as DOT."""
    again = compile_again(build)
    found = [(step, difference(step.before, step.after)) for step in again.steps]
    return {step.name: dot_of(again, step, did) for step, did in found if not did.empty}


def test_the_steps_that_did_something(dots):
    assert list(dots) == ["names", "place", "hoist", "count"]


@pytest.fixture
def copied(build, tmp_path):
    """The model with its build, to be changed."""
    shutil.copytree(build.parent, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("name", ["names", "place", "hoist", "count"])
def test_the_picture(dots, name, golden):
    golden(TEXTS / f"step-{name}.dot", dots[name])


def test_every_collective_of_the_plan_is_in_the_picture_of_placement(build, dots):
    text = re.sub(r"<[^>]*>", "", dots["place"])
    entries = json.loads((build / "plan.json").read_text())["collectives"]
    flat = [e for entry in entries for e in (entry["bodies"][0] if "loop" in entry else [entry])]
    assert flat
    for entry in flat:
        if entry["reason"].endswith("over a cut axis"):  # an op that communicates by itself
            assert re.search(rf"~ {entry['op']}.*split = {entry['axis']}", text), entry["op"]
        else:
            assert entry["reason"] in text
            assert re.search(rf"\+ {entry['op'].removesuffix('_')} over {entry['axis']}", text), entry["op"]


def test_a_block_is_there_once_and_says_how_often(dots):
    assert dots["place"].count("× 4") == 1


def test_the_log_of_the_build_has_the_numbers_of_the_picture(build, dots):
    for step in json.loads((build / "passes.json").read_text())["steps"]:
        if step["name"] in dots and step["added"]:
            assert f"{step['added']} added" in dots[step["name"]]


def test_layers_that_are_written_out_and_changed_alike_are_drawn_once(tmp_path):
    build = made(tmp_path, "moe_plain.py:tiny", EXPERTS)
    again = compile_again(build)
    step = next(s for s in again.steps if s.name == "experts")
    found = difference(step.before, step.after)
    whole = neighbours(found)
    part, times = once(whole)
    assert set(times.values()) == {2} and 2 * len(part.marks) == len(whole.marks)
    every: list[Node] = [*found.removed, *found.added]
    assert sum(n in part.marks for n in every) == len(every) / 2
    text = draw_step(build, "experts", [tmp_path / "experts.dot"])[0].read_text()
    assert text.count("+ route") == 1 and "× 2" in text


def test_an_unknown_step_is_answered_with_all_steps(build, golden):
    code, _, said = run("visualize", build, "--step", "placed")
    golden(TEXTS / "unknown-step.txt", said)
    assert code == 2


def test_a_step_that_changed_nothing_says_so(build, golden):
    code, _, said = run("visualize", build, "--step", "gathered")
    golden(TEXTS / "nothing-to-draw.txt", said)
    assert code == 1 and not list(build.glob("step-*"))


@pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz's dot is not installed")
def test_it_lies_in_the_build_unless_it_is_told_where(copied, tmp_path):
    code, said, _ = run("visualize", copied / "build", "--step", "count")
    assert code == 0 and said == f"wrote {copied / 'build' / 'step-count.svg'}\n"
    code, _, _ = run("visualize", copied / "build", "--step", "count", "-o", tmp_path / "a.png")
    assert code == 0 and (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_without_dot_there_is_its_text_and_a_line(build, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    code, said, told = run("visualize", build, "--step", "count", "-o", tmp_path / "a.svg")
    assert code == 0 and said == f"wrote {tmp_path / 'a.dot'}\n" and "`dot` is not installed" in told


def test_a_model_that_changed_since_is_refused(copied):
    path = copied / "nanogpt.py"
    path.write_text(path.read_text() + "\n# changed\n")
    with pytest.raises(GraphparError, match="source-changed"):
        draw_step(copied / "build", "place")


def test_a_spec_that_changed_since_is_refused(copied):
    path = copied / "build" / "spec.yaml"
    path.write_text(path.read_text() + "\n# changed\n")
    with pytest.raises(GraphparError, match="spec-changed"):
        draw_step(copied / "build", "place")


def test_a_build_of_another_program_is_refused(copied):
    path = copied / "build" / "plan.json"
    plan = json.loads(path.read_text())
    plan["collectives"].pop()
    path.write_text(json.dumps(plan))
    with pytest.raises(GraphparError, match="other-program"):
        draw_step(copied / "build", "place")


def test_passes_of_the_user_are_asked_for(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.py").write_text(OWN)
    build = made(tmp_path / "model", "nanogpt.py:tiny", SPEC, "--passes", own)
    with pytest.raises(GraphparError, match="other-passes"):
        draw_step(build, "count", [tmp_path / "a.dot"])
    assert draw_step(build, "count", [tmp_path / "a.dot"], own) == (tmp_path / "a.dot",)
    with pytest.raises(GraphparError, match="nothing-to-draw"):
        draw_step(build, "mine", [tmp_path / "a.dot"], own)
