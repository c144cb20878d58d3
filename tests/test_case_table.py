"""The table of cases is complete, and whatever it names as a proof is there."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tools.cases import PROOFS, ROOT, THEMES, page, proof, rows
from tools.mutants.table import MUTANTS

ROWS = rows()
EVERY = {
    "N": "02 03 04 05 06 09 11 13 14 15 17 18 20 21 22 24 27 30 31 33 36 37 38 41 42 44 46 48 51 52 53 54 55 56 57 59 61",
    "C": "01 02 03 04 05 06 07 08 10 12 13 15 16 18 20 21 22 24 25",
    "K": "01 02 04 05 10 12 13 14 15 16 18 19 21 22 23 24",
    "H": "01 02 03 04 06 08 09 10 11 14 15 18",
    "U": "02 03 04 06 08 10 11 12 14 16 17 18 19",
    "L": "1 4 5 6 8 11 12 13 14 15 16",
}


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize("row", [pytest.param(r, id=r["id"]) for r in ROWS if kind in r])


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


def named(place: str) -> str:
    """The function of `file.py::function`; fails unless both are there."""
    path, name = place.split("::")
    assert (ROOT / path).is_file(), path
    assert name in functions(ROOT / path), f"{path} has no {name}"
    return name


def test_every_case_has_a_row_and_no_row_is_there_twice() -> None:
    assert [r["id"] for r in ROWS] == [f"{theme}{n}" for theme, numbers in EVERY.items() for n in numbers.split()]
    assert list(EVERY) == list(THEMES)


@pytest.mark.parametrize("row", [pytest.param(r, id=r["id"]) for r in ROWS])
def test_a_row_says_what_goes_wrong_and_has_one_proof(row: dict[str, Any]) -> None:
    kind = proof(row)
    assert row.keys() - {kind} == {"id", "source", "wrong", "here"} | ({"at"} if kind == "impossible" else set())
    assert all(row[key] for key in ("wrong", "here", kind))


@of_kind("tests")
def test_its_tests_exist(row: dict[str, Any]) -> None:
    assert all(named(test).startswith("test_") for test in row["tests"])


@of_kind("mutants")
def test_its_mutants_exist_and_change_what_is_computed(row: dict[str, Any]) -> None:
    assert set(row["mutants"]) <= {m.name for m in MUTANTS if not m.equivalent}


@of_kind("impossible")
def test_what_makes_it_impossible_exists(row: dict[str, Any]) -> None:
    assert row["at"].startswith("graphpar/") and named(row["at"])


def test_a_case_without_proof_or_with_two_is_told() -> None:
    for kinds in ((), PROOFS[:2]):
        with pytest.raises(ValueError):
            proof(dict.fromkeys(kinds, "x"))


def test_the_page_is_made_of_the_rows() -> None:
    written = (ROOT / "docs" / "cases.md").read_text(encoding="utf-8")
    assert written == page(ROWS), "python -m tools.cases --write docs/cases.md"
