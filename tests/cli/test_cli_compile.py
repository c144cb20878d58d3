"""`graphpar compile`: what it writes, what it never overwrites, and what it says of the build."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from cli_run import MODELS, graphpar

import graphpar as graphpar_package
from graphpar.errors import GraphparError
from graphpar.explain.memory import memory, sharded
from graphpar.explain.summary import torchrun
from graphpar.explain.traffic import Tokens, traffic
from graphpar.runtime import GradientSums, simulate

ROOT = Path(__file__).parents[2]
NANO = ROOT / "tests" / "models" / "nanogpt.py"
TEXTS = Path(__file__).parent / "texts"
REST = MODELS.parent / "specs" / "rest.yaml"
SAME = {"init.json", "model.py", "plan.json", "spec.yaml", "train.py"}  # each time
FILES = {*SAME, "passes.json"}


@pytest.fixture(scope="module")
def build(tmp_path_factory) -> Path:
    """A small GPT on four ranks, compiled once; tests that write take a copy."""
    folder = tmp_path_factory.mktemp("compiled") / "build"
    said = graphpar("compile", NANO, "gpt2_dp2_tp2_sp", "-o", folder)
    assert said.code == 0, said.err
    (folder.parent / "said.txt").write_text(said.out)
    return folder


def small(folder: Path, *more: str):
    """Compile the smallest model there is."""
    return graphpar("compile", MODELS / "fine.py", MODELS.parent / "specs" / "fine.yaml", "-o", folder, *more)


def names(folder: Path) -> set[str]:
    return {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}


# ---- what it writes


def test_a_build_is_these_files_and_nothing_is_left_beside_it(build):
    assert names(build) == FILES
    assert names(build.parent) == {f"build/{name}" for name in FILES} | {"said.txt"}


def test_compiling_twice_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        assert small(tmp_path / name).code == 0
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in SAME)


def test_a_plan_over_its_budget_is_told_and_not_written(tmp_path):
    spec = tmp_path / "spec.yaml"
    text = (MODELS.parent / "specs" / "fine.yaml").read_text().rstrip() + "\n"
    spec.write_text(text + "expect:\n  collectives: {}\n  memory: 1 KiB\n  lines: 10\n")
    said = graphpar("compile", MODELS / "fine.py", spec, "-o", tmp_path / "build")
    assert said.code == 2 and "over-budget" in said.err and not (tmp_path / "build").exists()
    for line in ("none expected", "at most 1 KiB expected", "in model.py, at most 10 expected"):
        assert line in said.err
    fix = said.err.split("fix: ")[1]
    spec.write_text(text + "\n".join(line.removeprefix("         ") for line in fix.splitlines()) + "\n")
    said = graphpar("compile", MODELS / "fine.py", spec, "-o", tmp_path / "build")
    assert said.code == 0, said.err + spec.read_text()


def test_the_python_function_does_what_the_command_does(tmp_path):
    assert small(tmp_path / "one").code == 0
    spec = MODELS.parent / "specs" / "fine.yaml"
    summary = graphpar_package.compile(MODELS / "fine.py", spec, tmp_path / "two")
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in SAME)
    assert summary.folder == tmp_path / "two" and summary.to_json()["ok"]


def test_the_python_function_raises_what_the_command_tells(tmp_path):
    with pytest.raises(GraphparError, match="cannot read the spec"):
        graphpar_package.compile(MODELS / "fine.py", tmp_path / "missing.yaml", tmp_path / "build")
    assert not (tmp_path / "build").exists()


@pytest.mark.parametrize(
    ("ranks", "said"), [(4, "--standalone --nproc-per-node 4"), (64, "--nnodes 8 --nproc-per-node 8")]
)
def test_the_line_that_starts_training_names_as_many_ranks(ranks, said):
    assert said in torchrun(ranks)


def test_the_plan_says_what_the_build_was_made_from(build):
    source = json.loads((build / "plan.json").read_text())["source"]
    assert source["model"] == "nanogpt.py:GPT"
    assert source["spec_file"] == "gpt2_dp2_tp2_sp.yaml"
    assert (build / source["path"]).resolve() == NANO
    assert source["torch"] == torch.__version__.partition("+")[0]


def test_the_summary(build, golden):
    text = (build.parent / "said.txt").read_text().replace(str(build), "BUILD").replace(str(NANO), "nanogpt.py")
    golden(TEXTS / "compile.txt", text)


@pytest.mark.parametrize(
    ("layout", "idle"), [("[]", ["pp", "dp"]), ("[{batch: dp}]", ["pp"]), ("[{batch: [pp, dp]}]", [])]
)
def test_axes_that_nothing_names_are_told(layout, idle, tmp_path):
    """As when `pipeline` was forgotten."""
    (tmp_path / "spec.yaml").write_text(f"version: 1\nmesh: {{pp: 2, dp: 2}}\nlayout: {layout}\n")
    said = graphpar("compile", f"{NANO}:tiny", tmp_path / "spec.yaml", "-o", tmp_path / "build").out
    told = [line for line in said.splitlines() if "ranks compute the same" in line]
    assert told == [f"note: neither `layout` nor `pipeline` names {a}: its 2 ranks compute the same" for a in idle]
    assert ("  layout" in said) == (layout != "[]")


def test_the_default_folder_is_named_after_model_and_spec(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text((MODELS.parent / "specs" / "fine.yaml").read_text())
    assert graphpar("compile", f"{MODELS / 'fine.py'}:Model", "own.yaml").code == 0
    assert names(tmp_path / "build" / "Model-own") == FILES


# ---- what it never overwrites


def test_an_untouched_build_is_replaced(tmp_path):
    folder = tmp_path / "build"
    assert small(folder).code == 0
    assert graphpar("compile", MODELS / "fine.py", REST, "--world", "2", "-o", folder).code == 0
    assert json.loads((folder / "plan.json").read_text())["mesh"] == {"dp": 1, "tp": 2}


def test_an_edited_file_is_kept_unless_forced(tmp_path, golden):
    folder = tmp_path / "build"
    assert small(folder).code == 0
    edited = (folder / "model.py").read_text() + "\n# mine\n"
    (folder / "model.py").write_text(edited)
    said = small(folder)
    golden(TEXTS / "edited-build.txt", said.err.replace(str(folder), "BUILD"))
    assert said.code == 2
    assert (folder / "model.py").read_text() == edited
    assert small(folder, "--force").code == 0
    assert "# mine" not in (folder / "model.py").read_text()


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_a_folder_with_something_else_is_left_alone(tmp_path, force, golden):
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "plan.json").write_text('{"title": "mine"}')
    said = small(tmp_path, *force)
    golden(TEXTS / "not-a-build.txt", said.err.replace(str(tmp_path), "FOLDER"))
    assert said.code == 2
    assert names(tmp_path) == {"thesis.tex", "plan.json"}


def test_a_write_that_fails_leaves_no_half_of_a_build(tmp_path, monkeypatch):
    text = Path.write_text

    def full(path: Path, *args, **kwargs):
        if path.name == "train.py":
            raise OSError(28, "No space left on device", str(path))
        return text(path, *args, **kwargs)

    monkeypatch.setattr(Path, "write_text", full)
    said = small(tmp_path / "build")
    assert said.code == 2
    assert "error[cannot-write]" in said.err and "No space left on device" in said.err
    assert list(tmp_path.iterdir()) == []


# ---- standalone


def test_a_standalone_build_needs_no_graphpar(tmp_path):
    folder = tmp_path / "build"
    assert small(folder, "--standalone").code == 0
    program = "import sys; sys.modules['graphpar'] = None; sys.argv = ['train.py', '--help']; import train; train.main"
    alone = f"import sys; sys.path.insert(0, {str(folder)!r}); {program}"
    done = subprocess.run([sys.executable, "-I", "-c", alone], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "graphpar.runtime" not in "".join(
        line for file in folder.rglob("*.py") for line in file.read_text().splitlines() if "import" in line
    )


def test_the_runtime_goes_when_a_build_is_standalone_no_more(tmp_path):
    folder = tmp_path / "build"
    assert small(folder, "--standalone").code == 0
    assert any(name.startswith("graphpar_runtime/") for name in names(folder))
    assert small(folder).code == 0
    assert names(folder) == FILES


# ---- ranks


def test_a_mesh_takes_the_rest_of_the_ranks(tmp_path):
    assert graphpar("compile", MODELS / "fine.py", REST, "--world", "8", "-o", tmp_path / "build").code == 0
    assert json.loads((tmp_path / "build" / "plan.json").read_text())["mesh"] == {"dp": 4, "tp": 2}


def test_ranks_that_do_not_fit(golden, tmp_path, monkeypatch):
    monkeypatch.chdir(MODELS.parent / "specs")
    said = [
        graphpar("compile", NANO, "fine.yaml", "--world", "8", "-o", tmp_path / "build"),
        graphpar("compile", NANO, "rest.yaml", "-o", tmp_path / "build"),
        graphpar("compile", NANO, "gpt2_tp", "-o", tmp_path / "build"),
        graphpar("compile", NANO, "fine.yaml", "--passes", "nowhere", "-o", tmp_path / "build"),
    ]
    golden(TEXTS / "command-line.txt", "\n".join(s.err for s in said).replace(str(Path.cwd()), "."))
    assert {s.code for s in said} == {2}


# ---- what it says


def test_the_summary_as_json_has_the_numbers(tmp_path):
    said = graphpar("compile", NANO, "gpt2_dp2_tp2_sp", "-o", tmp_path, "--json")
    summary, plan = json.loads(said.out), json.loads((tmp_path / "plan.json").read_text())
    assert summary["ok"] and summary["launch"].startswith("torchrun --standalone --nproc-per-node 4 ")
    assert summary["memory_per_rank"]["parameters"] == memory(plan).parameters
    assert summary["sharded"]["parameters"] == sharded(plan).parameters == 25
    assert {(y["axis"], y["name"], y["to"]) for y in summary["yields"]} == {
        ("tp", "seq", "heads"),
        ("tp", "seq", "d_ff"),
        ("tp", "seq", "vocab"),
    }


def test_what_a_rank_allocates_is_what_was_said(build):
    plan = json.loads((build / "plan.json").read_text())
    [model] = {type(m).__name__: m for m in simulate(plan["mesh"], lambda mesh: program(build).GPT(mesh))}.values()
    assert memory(plan).parameters == sum(p.nbytes for p in model.parameters())
    assert memory(plan).gradients == memory(plan).moments // 2 == sum(p.nbytes for p in model.parameters())


def test_what_a_step_sends_is_what_was_said(build):
    plan = json.loads((build / "plan.json").read_text())
    ids = torch.randint(0, 96, (4, 16))

    def step(mesh):
        model = program(build).GPT(mesh)
        with torch.no_grad():
            for p in model.parameters():
                p.fill_(0.01)
        sums = GradientSums(model, mesh)
        rows = ids.chunk(mesh["dp"].size)[mesh["dp"].rank]
        mesh.log = []
        with sums.last_microbatch():
            model(idx=rows, targets=rows, count=torch.tensor(64)).backward()
        sums.finish()
        return mesh.log

    said = {(t.phase, t.kind, t.axis): (t.count, t.bytes) for t in traffic(plan, Tokens(4, 16, ""))}
    for log in simulate(plan["mesh"], step):
        count, size = Counter(), Counter()
        for ran in log:
            key = (ran.phase.replace("step", "gradients"), ran.kind.replace("_max", ""), ran.axis)
            count[key] += 1
            size[key] += ran.bytes
        assert {key: (count[key], size[key]) for key in count} == said


def program(folder: Path):
    spec = importlib.util.spec_from_file_location("compiled", folder / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
