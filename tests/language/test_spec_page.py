"""specs/README.md describes the language that is read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from graphpar.language.check_pipeline import check_pipeline
from graphpar.language.parse import KEYS, LATER, parse_spec
from graphpar.language.parse_moe import KEYS as MOE
from graphpar.language.parse_moe import REQUIRED as REQUIRED_OF_MOE
from graphpar.language.parse_pipeline import KEYS as PIPELINE
from graphpar.language.parse_pipeline import REQUIRED
from graphpar.language.schedules import MANY, SCHEDULES

TEXT = (Path(__file__).parents[2] / "specs" / "README.md").read_text(encoding="utf-8")
CELLS = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TEXT.splitlines() if line.startswith("|")]
ROWS = {first: rest for first, *rest in CELLS}
EXAMPLES = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("key", [*KEYS, *PIPELINE, *MOE])
def test_every_key_has_a_row(key):
    assert f"`{key}`" in ROWS


@pytest.mark.parametrize("key", [*PIPELINE, *MOE])
def test_required_is_said_of_what_is_required(key):
    assert ROWS[f"`{key}`"][0].startswith("required") == (key in {*REQUIRED, *REQUIRED_OF_MOE})


def test_words_without_a_meaning_are_those_that_are_refused():
    line = next(line for line in TEXT.splitlines() if "without a meaning yet" in line)
    assert set(re.findall("`(.*?)`", line)) == set(LATER)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_needs_what_its_row_says(name):
    schedule = SCHEDULES[name]
    virtual, microbatches, _ = ROWS[f"`{name}`"]
    more = f"{schedule.least} or more, default {schedule.usual}"
    assert virtual == (more if schedule.most == MANY else str(schedule.usual))
    told = "a multiple of the ranks" if schedule.rounds else "at least one for each stage" if schedule.filled else "any"
    assert microbatches == told


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_are_specs(example):
    head = "" if example.startswith("version") else "version: 1\nmesh: {tp: 2}\nlayout: []\n"
    assert not check_pipeline(parse_spec(head + example))
