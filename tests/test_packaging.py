"""What is in the tree is in the wheel."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {"graphpar": ROOT / "graphpar", "graphpar.passes": ROOT / "passes", "graphpar.specs": ROOT / "specs"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def files(folder: Path) -> Iterator[Path]:
    """Every file below a source folder that somebody wrote."""
    return (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def installed(path: Path) -> str:
    """Where a file of the tree belongs in a wheel."""
    for package, folder in SOURCES.items():
        if path.is_relative_to(folder):
            return "/".join([*package.split("."), *path.relative_to(folder).parts])
    raise AssertionError(path)


def shipped_files() -> set[str]:
    return {installed(path) for folder in SOURCES.values() if folder.is_dir() for path in files(folder)}


def test_the_listed_packages_are_the_folders_of_the_tree() -> None:
    found = {name.rpartition("/")[0].replace("/", ".") for name in shipped_files()}
    # A folder with nothing but data belongs to the package above it.
    found = {name for name in found if name == "graphpar.specs" or has_modules(name)}
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(found)


def has_modules(package: str) -> bool:
    return any(
        name.endswith(".py") and name.rpartition("/")[0] == package.replace(".", "/") for name in shipped_files()
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names in a wheel built from a copy of the tree, so that the build leaves nothing in this one."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "source"
    copy.mkdir()
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("graphpar", "passes", "specs"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=ignore)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, copy)
    build = "import setuptools.build_meta as b, sys; print(b.build_wheel(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=copy, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return set(zipfile.ZipFile(path).namelist())


def test_the_wheel_has_every_file_of_the_tree(wheel: set[str]) -> None:
    assert {name for name in wheel if ".dist-info/" not in name} == shipped_files()


def test_the_wheel_has_nothing_outside_graphpar(wheel: set[str]) -> None:
    assert {name.split("/")[0].split("-")[0] for name in wheel} == {"graphpar"}


def test_the_wheel_is_typed_and_licensed(wheel: set[str]) -> None:
    assert "graphpar/py.typed" in wheel
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)


def test_every_dependency_is_pinned() -> None:
    """What `make` installs is fixed, and torch without a local part: `2.13.0` holds for any build of it."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    pins = dict(line.split("==") for line in lines if line)
    assert "+" not in pins["torch"]
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [*PROJECT["project"]["dependencies"], *chain.from_iterable(extras)]
    names = {entry.partition(">")[0].partition("[")[0] for entry in wanted}
    assert names <= set(pins)
