"""What is written is text that people keep: clean for ruff and pyright, the same bytes every time, named as the source.

`ruff format` is not asked: it would tear the shapes at the ends of lines out of their column.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zoo
from write_builds import BUILDS, folder

from graphpar.runtime import collectives

ROOT = Path(__file__).parents[2]
GOLDENS = Path(__file__).parent / "goldens"
GOLDEN = ["gpt2-dp2xtp2+sp", "llama-tp2+sp", "nanogpt-dp2xtp2+sp", "gpt2-pp2xtp2+sp"]
CODE = 120  # columns of a line without its comment

pytestmark = pytest.mark.xdist_group("generated text")

LONG_CALL = "a call of many arguments is broken once, with all of them on one line of any length"
LONG_LISTS = "a class that many places share lists all of them on one line, as a row of kinds of layer does"
BUFFERS = "a buffer is registered and not declared: for pyright it is `Tensor | Module`"
SORTED = "graphpar and the model are sorted as if the file lay in graphpar's own checkout"


def each_build(**mistakes: str) -> Any:
    """A test of every build; one of a model in `mistakes` is expected to fail."""
    return pytest.mark.parametrize(
        "name",
        [pytest.param(folder(*build), marks=_expected(mistakes.get(build[0]))) for build in BUILDS],
    )


def _expected(mistake: str | None) -> list[pytest.MarkDecorator]:
    return [] if mistake is None else [pytest.mark.xfail(strict=True, raises=AssertionError, reason=mistake)]


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """All builds, written by two processes that order sets differently."""
    return [_written(tmp_path_factory.mktemp(f"seed{seed}"), seed) for seed in (0, 1)]


def _written(target: Path, seed: int) -> Path:
    script = Path(__file__).parent / "write_builds.py"
    environment = os.environ | {"PYTHONHASHSEED": str(seed)}
    done = subprocess.run([sys.executable, script, target], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return target


@pytest.fixture(scope="module")
def builds(twice: list[Path]) -> Path:
    """The folder of all builds."""
    return twice[0]


# ---- tools ----------------------------------------------------------------------------------------------------------


def ruff(builds: Path, *arguments: str) -> list[str]:
    """What `ruff check` says of all builds, whatever this project's own settings are; lines may be of any length."""
    common = ["--isolated", "--no-cache", "--output-format=concise", "--target-version=py311", "--line-length=120"]
    command = [sys.executable, "-m", "ruff", "check", *common, *arguments, "--ignore=E501", str(builds)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return [line for line in done.stdout.splitlines() if ".py:" in line]


def test_ruff_finds_nothing(builds: Path) -> None:
    assert ruff(builds, "--select=E,W,F,I,B,UP", "--config", 'lint.isort.known-first-party=["graphpar"]') == []


@pytest.mark.xfail(strict=True, raises=AssertionError, reason=SORTED)
def test_imports_are_in_order_where_the_files_lie(builds: Path) -> None:
    """In a build's folder, `model` is what is local and graphpar a library like torch."""
    places = ",".join(f'"{path}"' for path in builds.iterdir())
    assert ruff(builds, "--select=I", "--config", f"src=[{places}]") == []


@pytest.fixture(scope="module")
def type_errors(builds: Path) -> dict[str, list[str]]:
    """What pyright says of the programs, by build."""
    settings = {"typeCheckingMode": "basic", "extraPaths": [str(ROOT)]}
    (builds / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [
        sys.executable,
        "-m",
        "pyright",
        "--outputjson",
        "--pythonpath",
        sys.executable,
        "--project",
        str(builds),
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=builds)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 2 * len(BUILDS), done.stdout
    found: dict[str, list[str]] = {folder(*build): [] for build in BUILDS}
    for each in report["generalDiagnostics"]:
        file = Path(each["file"])
        found[file.parent.name].append(f"{file.name}:{each['range']['start']['line'] + 1}: {each['message']}")
    return found


@each_build()
def test_pyright_finds_nothing_but_buffers(type_errors: dict[str, list[str]], name: str) -> None:
    assert [error for error in type_errors[name] if "Tensor | Module" not in error] == []


@each_build(llama=BUFFERS, llama_gqa=BUFFERS, phi3=BUFFERS, gemma2=BUFFERS)
def test_pyright_knows_what_a_buffer_is(type_errors: dict[str, list[str]], name: str) -> None:
    assert [error for error in type_errors[name] if "Tensor | Module" in error] == []


# ---- text -----------------------------------------------------------------------------------------------------------


def test_the_same_bytes_every_time(twice: list[Path]) -> None:
    """Whatever order a set of strings has."""
    one, two = ({p.relative_to(path): p.read_bytes() for p in path.rglob("*.*") if p.is_file()} for path in twice)
    one.pop(Path("pyrightconfig.json"), None)
    assert len(one) == 5 * len(BUILDS) + sum(layout.startswith("pp") for _, layout in BUILDS)
    assert one.keys() == two.keys()
    assert [str(path) for path, text in one.items() if text != two[path]] == []


@each_build(gpt2=LONG_CALL, gemma2=LONG_LISTS)
def test_no_line_is_long_without_its_comment(builds: Path, name: str) -> None:
    text = (builds / name / "model.py").read_text()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    ends = {t.start[0]: t.start[1] for t in tokens if t.type == tokenize.COMMENT}
    code = {n: line[: ends.get(n)].rstrip() for n, line in enumerate(text.splitlines(), 1)}
    assert {n: line for n, line in code.items() if len(line) > CODE} == {}


@pytest.mark.parametrize("name", GOLDEN)
def test_a_program_is_the_one_that_was_read(builds: Path, golden: Any, name: str) -> None:
    golden(GOLDENS / f"{name}.py.txt", (builds / name / "model.py").read_text())


# ---- names ----------------------------------------------------------------------------------------------------------


def tree(builds: Path, name: str) -> ast.Module:
    return ast.parse((builds / name / "model.py").read_text())


def bound(program: ast.AST) -> Iterator[str]:
    """Every name that the program makes up or takes over; names that it only uses are those of libraries."""
    for node in ast.walk(program):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.Call(func=ast.Name(id="Parameters"), keywords=keywords):
                yield from (k.arg for k in keywords if k.arg is not None)
            case _:
                pass


def source_names(model: zoo.Model) -> set[str]:
    """Every word in the model's own source file."""
    if model.file is not None:
        path = zoo.FILES / model.file.partition(":")[0]
    else:
        library = importlib.util.find_spec("transformers")
        assert library is not None and library.origin is not None
        kind = model.config["model_type"]
        path = Path(library.origin).parent / "models" / kind / f"modeling_{kind}.py"
    return set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(("model", "layout"), BUILDS)
def test_names_have_no_counters(builds: Path, model: str, layout: str) -> None:
    """A name ends in a number only where the source's does: `ln_1` and `x1` are its words, `x_2` is none."""
    numbered = {n for n in bound(tree(builds, folder(model, layout))) if n[-1].isdigit()}
    assert numbered - source_names(zoo.MODELS[model]) == set()


@pytest.mark.parametrize(("model", "layout"), BUILDS)
def test_classes_are_named_by_the_source(builds: Path, model: str, layout: str) -> None:
    """After a class, or a submodule where one class becomes two; a letter tells the kinds of a layer apart (gemma2)."""
    classes = [node.name for node in tree(builds, folder(model, layout)).body if isinstance(node, ast.ClassDef)]
    own = {re.sub(r"(First|Middle|Last)?((?<=[a-z])B)?$", "", name) for name in classes}
    words = source_names(zoo.MODELS[model])
    camel = {"".join(part.capitalize() for part in word.split("_")) for word in words}
    elsewhere = {"NewGELUActivation"} if model == "gpt2" else set[str]()  # a class of another file of the library
    assert own - words - camel - elsewhere == set()
    assert len(set(classes)) == len(classes)


# ---- collectives ----------------------------------------------------------------------------------------------------

COMMUNICATE = {
    name
    for name, function in vars(collectives).items()
    if inspect.isfunction(function)
    and function.__module__ == collectives.__name__
    and "axis" in inspect.signature(function).parameters
    and not name.startswith("_")
}


def communicates(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in COMMUNICATE


@each_build()
def test_a_collective_stands_on_a_line_of_its_own(builds: Path, name: str) -> None:
    """`name = collective(value, ..)` or `return collective(value, ..)`, and the value is a name."""
    program = tree(builds, name)
    alone = [
        node.value
        for node in ast.walk(program)
        if isinstance(node, ast.Return) or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name))
    ]
    calls = [node for node in ast.walk(program) if communicates(node)]
    assert {"all_gather", "all_reduce", "reduce_scatter", "slice_", "grad_all_reduce"} <= COMMUNICATE
    assert calls
    assert [ast.unparse(c) for c in calls if c not in alone] == []
    assert [ast.unparse(c) for c in calls if not isinstance(c, ast.Call) or not isinstance(c.args[0], ast.Name)] == []
    assert len({getattr(c, "lineno", 0) for c in calls}) == len(calls)
