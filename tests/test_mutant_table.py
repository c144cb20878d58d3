"""The table of wrong programs is sound, and the verifier rejects those that are tried here; the tool tries them all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from graphpar.verify.batches import Batches, fitting
from graphpar.verify.locate import locate
from graphpar.verify.origin import nudged, one_device, values
from graphpar.verify.program import read_program
from graphpar.verify.single import Single
from tools.mutants.builds import Build, compiled
from tools.mutants.judge import judge
from tools.mutants.mutant import Mutant, NothingToMutateError, Patch, Text
from tools.mutants.report import page, score
from tools.mutants.table import KINDS, MUTANTS

pytestmark = pytest.mark.xdist_group("mutants")

ROOT = Path(__file__).parents[1]
BUILDS = sorted({mutant.build for mutant in MUTANTS})
TRIED = (  # one of each way to make a mutant, and of what a hole would be hardest to see in
    "a gather with the gradient of one rank",
    "the same, in the plan as well",
    "less is dropped on every rank",
    "q, k and v cut as one",
    "a norm that counts replicas",
    "sums that start before the last backward",
    "one parameter is stale on one data rank",
    "halves of keys and queries swapped",
    "no gradient into attention",  # it does not arrive
    "no sum of the head's gradient",  # the first value that differs is in another module
    "the mean loss of the ranks",  # outside of the model
    "masks of one device, not cut over tp",  # with dropout only
    "no gradient goes to the experts",  # rows lie otherwise on every number of ranks
    "the mean of the losses of ranks",  # of balanced experts
    "weights of the other slot",
    "a rank without rows sends nothing",  # every rank has rows in a random batch
    "rows of the last rank first",  # which is right
)


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Build]:
    folder = tmp_path_factory.mktemp("builds")
    return {name: compiled(name, folder) for name in BUILDS}


def test_there_are_mutants_of_every_kind() -> None:
    assert {mutant.kind for mutant in MUTANTS} == set(KINDS)
    assert len(MUTANTS) >= 60
    assert len({(m.name, m.build, m.edits) for m in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("build", BUILDS)
def test_every_edit_applies(build: str, builds: dict[str, Build]) -> None:
    files = builds[build].files
    for mutant in MUTANTS:
        if mutant.build == build:
            assert mutant.patches or mutant.apply(files) != files, mutant.name


@pytest.mark.parametrize("edit", [e for m in MUTANTS for e in m.patches], ids=lambda e: e.name)
def test_a_patch_replaces_something_and_puts_it_back(edit: Patch) -> None:
    with edit.active() as wrong:
        assert callable(wrong)
    with edit.active() as again:
        assert again is not wrong


def test_the_page_has_every_mutant() -> None:
    text = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ") and " | " in line]
    told = {(row[0].removeprefix("| "), row[1]) for row in rows} - {("build", "mutant")}
    assert told == {(mutant.build, mutant.name) for mutant in MUTANTS}


def test_the_readme_has_the_score_of_the_page() -> None:
    text = (ROOT / "docs" / "mutants.md").read_text(encoding="utf-8")
    killed, of = re.findall(r"(\d+) of (\d+) mutants are killed", text)[0]
    (leading,) = re.findall(r"(\d+) of \d+ reports lead to the mistake", text)
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert killed == of
    assert f"of {len(MUTANTS)} [wrong programs]" in readme
    assert f"it rejects {killed}, with a report that leads to the mistake for {leading}" in readme


def test_an_edit_that_finds_nothing_is_told(builds: dict[str, Build]) -> None:
    with pytest.raises(NothingToMutateError, match="nowhere"):
        Text("nowhere", "").apply(builds[BUILDS[0]].files)


@pytest.mark.parametrize("name", TRIED)
def test_a_wrong_program_is_rejected(name: str, builds: dict[str, Build]) -> None:
    mutant = next(m for m in MUTANTS if m.name == name)
    outcome = judge(mutant, builds[mutant.build])
    assert bool(outcome.check) == (not mutant.equivalent), outcome
    assert outcome.named not in ("astray", "none"), outcome
    assert name in page([outcome]) and score([outcome])["mutants"] == 1


@pytest.mark.parametrize("build", [b for b in BUILDS if " pp" not in b])
def test_a_right_program_has_no_first_difference(build: str, builds: dict[str, Build]) -> None:
    made = builds[build]
    program = read_program(made.folder)
    with one_device(made.origin, made.spec, program.document["source"]) as single:
        values_ = values(nudged(made.origin.build(0), 0))
        size = fitting(program.plan)
        batch = Batches(program.plan, 0).draw(size)
        assert locate(program, Single(single, values_), batch, size) is None


def test_what_is_not_wrong_is_told_as_a_hole(builds: dict[str, Build]) -> None:
    nothing = Mutant("nothing", "drop", "gpt tp2", (Text("class GPT", "class GPT  "),))
    outcome = judge(nothing, builds["gpt tp2"])
    assert outcome.is_hole and "SURVIVES" in page([outcome])


def test_the_tool_runs_and_writes_what_it_found(tmp_path: Path) -> None:
    files = ["--json", str(tmp_path / "found.json"), "--write", str(tmp_path / "found.md")]
    command = [sys.executable, "-m", "tools.mutants", "--only", "no Python", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads((tmp_path / "found.json").read_text())["killed"] == 1
    assert "no Python" in (tmp_path / "found.md").read_text()
