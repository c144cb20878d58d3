"""Passes and specs are found by name, wherever they lie."""

import sys
from pathlib import Path

import pytest

from graphpar import library
from graphpar.errors import GraphparError


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_user_pass_is_loaded_by_name_and_once(tmp_path: Path) -> None:
    write(tmp_path, "shrink.py", "counter = []\ncounter.append(1)\n")
    first = library.load_pass("shrink", [tmp_path])
    assert first is library.load_pass("shrink", [tmp_path])
    assert first is sys.modules["graphpar.passes.shrink"]
    assert first.counter == [1]


def test_a_pass_may_hold_dataclasses(tmp_path: Path) -> None:
    head = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    write(tmp_path, "holder.py", head + "@dataclass\nclass P:\n    n: int = 2\n")
    assert library.load_pass("holder", [tmp_path]).P().n == 2


def test_the_same_name_in_another_folder_is_another_pass(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "same.py", f"where = {name!r}\n")
    assert [library.load_pass("same", [tmp_path / name]).where for name in ("a", "b")] == ["a", "b"]


def test_a_pass_that_fails_to_load_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path, "broken.py", "raise ZeroDivisionError\n")
    with pytest.raises(ZeroDivisionError):
        library.load_pass("broken", [tmp_path])
    assert "graphpar.passes.broken" not in sys.modules


def test_a_wrong_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "shrink.py", "")
    with pytest.raises(GraphparError, match="no pass is called `shrnk`; did you mean `shrink`"):
        library.load_pass("shrnk", [tmp_path])


def test_two_passes_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "same.py", "")
    with pytest.raises(GraphparError, match="two files are called pass `same`"):
        library.passes([tmp_path / "a", tmp_path / "b"])


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphparError, match="there is no folder"):
        library.passes([tmp_path / "nowhere"])


def test_a_spec_is_found_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "two-ranks.yaml", "version: 1\n")
    assert library.find_spec("two-ranks", [tmp_path]) == path


@pytest.mark.parametrize("folder", ["passes", "specs"])
def test_a_folder_beside_the_package_counts_only_in_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    package = tmp_path / "graphpar"
    package.mkdir()
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(library, "__file__", str(package / "library.py"))
    assert library.shipped(folder) is None
    (tmp_path / "pyproject.toml").touch()
    assert library.shipped(folder) == tmp_path / folder
    (package / folder).mkdir()
    assert library.shipped(folder) == package / folder


def test_every_shipped_pass_loads() -> None:
    for name in library.passes():
        assert library.load_pass(name).__doc__, f"passes/{name}.py does not say what it does"
