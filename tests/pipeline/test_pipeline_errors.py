"""Every mistake of a pipeline that shows with a model or a schedule's file: a spec, and its whole text beside it.

`pytest --update-golden` writes the texts.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from compiled_zoo import origin

from graphpar.compiler import simplify
from graphpar.errors import GraphparError, read_source, render_all
from graphpar.language import load_spec
from graphpar.pipeline.cutting import resolve

HERE = Path(__file__).parent / "errors"
ENGINE = HERE.parents[2] / "graphpar" / "pipeline"


@pytest.fixture(scope="module")
def graph():
    return simplify(origin("nanogpt").captured.graph)


@pytest.mark.parametrize("name", sorted(path.stem for path in HERE.glob("*.yaml")))
def test_the_text_of_a_mistake_is_the_golden(name, graph, golden, monkeypatch):
    monkeypatch.chdir(HERE)
    with pytest.raises(GraphparError) as caught:
        resolve(load_spec(f"{name}.yaml"), graph)
    assert caught.value.exit_code == 2
    golden(HERE / f"{name}.txt", render_all(caught.value, read_source) + "\n")


def test_every_code_of_a_pipeline_is_tested():
    calls = (
        n for file in ENGINE.glob("*.py") for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)
    )
    codes = {
        n.args[0].value for n in calls if ast.unparse(n.func) == "Diagnostic" and isinstance(n.args[0], ast.Constant)
    }
    tests = [*HERE.glob("*.txt"), *HERE.parent.glob("test_*.py"), HERE.parents[1] / "test_recompute.py"]
    texts = "".join(path.read_text() for path in tests)
    assert codes and {code for code in codes if f"[{code}]" not in texts and f'"{code}"' not in texts} == set()
