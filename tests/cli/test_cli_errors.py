"""Every mistake that the front door can tell: its exit code and its whole text."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from cli_run import MODELS, graphpar

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "graphpar"
TEXTS = HERE / "errors"
COMMAND_LINE, MODEL = 2, 3

# What the files in models/ do wrong when their forward is captured.
CAPTURE = """always_dropped autocast_region branch_on_values buffer_updated constructor_raises gradient_hook
loop_over_experts missing_import no_labels no_loss item_as_value item_printed one_length own_backward
one_label parameter_hook raises_on_import rows_by_mask rows_shortened two_inputs unused_parameters value_in_constructor
value_in_forward writes_into_view wrong_call wrong_shape more_than_experts""".split()

# What is wrong on the command line: arguments of `graphpar names`.
COMMANDS = {
    "no-file": ["fyne.py"],
    "no-folder": ["nowhere/fine.py"],
    "no-model": ["gpt3"],
    "no-module": ["small.nothing:Model"],
    "no-object": ["fine.py:Modell"],
    "no-config": ["."],
    "several": ["several.py"],
    "needs-config": ["needs_config.py"],
    "needs-config-named": ["needs_config.py:Model"],
    "no-modules": ["no_modules.py"],
    "not-a-module": ["no_modules.py:Config"],
    "returns-no-module": ["no_modules.py:build"],
    "returns-list": ["factory.py:load_data"],
    "instance": ["instance.py:model"],
    "text-file": ["../specs/fine.yaml"],
}

# The model of each spec in specs/, and the exit code.
WITH_SPEC = {
    "bad-args": ("fine.py", COMMAND_LINE),
    "bad-dtype": ("fine.py", COMMAND_LINE),
    "bad-input": ("fine.py", COMMAND_LINE),
    "flat-stream": ("flat_stream.py", MODEL),
    "last-position": ("last_position.py", MODEL),
    "no-object-in-spec": ("fine.py", COMMAND_LINE),
    "unknown-dimension": ("fine.py", COMMAND_LINE),
    "unknown-op": ("unknown_op.py", MODEL),
}


@pytest.fixture(autouse=True)
def among_the_models(monkeypatch):
    monkeypatch.chdir(MODELS)


@pytest.mark.parametrize("name", CAPTURE)
def test_a_model_that_cannot_be_captured(name, golden):
    said = graphpar("names", f"{name}.py")
    golden(TEXTS / f"{name.replace('_', '-')}.txt", said.err)
    assert (said.code, said.out) == (MODEL, "")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_model_that_is_not_found(name, golden):
    said = graphpar("names", *COMMANDS[name])
    golden(TEXTS / f"{name}.txt", said.err)
    assert (said.code, said.out) == (COMMAND_LINE, "")


@pytest.mark.parametrize("name", WITH_SPEC)
def test_a_spec_that_does_not_fit_its_model(name, golden, tmp_path):
    model, code = WITH_SPEC[name]
    said = graphpar("compile", model, f"../specs/{name}.yaml", "-o", tmp_path / "build")
    golden(TEXTS / f"{name}.txt", said.err)
    assert (said.code, said.out) == (code, "")
    assert not (tmp_path / "build").exists()


def test_a_file_that_is_not_python(golden, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("class Model(\n    pass\n")
    monkeypatch.chdir(tmp_path)
    said = graphpar("names", "broken.py")
    golden(TEXTS / "not-python.txt", said.err)
    assert said.code == MODEL


def test_errors_as_json_are_the_fields_of_the_diagnostics():
    said = graphpar("names", "no_loss.py", "--json")
    (error,) = json.loads(said.out)["errors"]
    assert (said.code, said.err) == (MODEL, "")
    assert (error["code"], error["kind"]) == ("no-loss", "model")
    assert error["span"]["line"] == 7


def test_a_traceback_is_shown_only_on_request():
    assert "Traceback" not in graphpar("names", "constructor_raises.py").err
    said = graphpar("names", "constructor_raises.py", "--traceback")
    assert "Traceback" in said.err
    assert "error[constructor-failed]" in said.err


def test_a_mistake_of_graphpar_is_called_one(monkeypatch):
    monkeypatch.setattr("graphpar.sources.captured.capture", lambda *_: [][0])
    said = graphpar("names", "fine.py")
    assert said.code == 1
    assert said.err.startswith("internal error: IndexError")
    assert "Traceback" not in said.err


def test_every_mistake_of_the_front_door_is_tested():
    tests = "".join(
        p.read_text()
        for p in [
            *TEXTS.glob("*.txt"),
            *TEXTS.parent.glob("t*/*.txt"),
            *HERE.glob("test_[!c]*.py"),
            HERE / "test_cli_compile.py",
        ]
    )
    missing = {code for code in codes() if f"[{code}]" not in tests and f'"{code}"' not in tests}
    # Told through a field of theirs in test_sources.py, or a last resort for what torch alone knows.
    assert missing == {"bad-config", "no-transformers", "not-captured"}


def codes() -> set[str]:
    files = [*ENGINE.glob("sources/*.py"), *ENGINE.glob("cli/*.py")]
    calls = [n for file in files for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call)]
    return {
        n.args[0].value
        for n in calls
        if ast.unparse(n.func) in ("Diagnostic", "_raised") and n.args and isinstance(n.args[0], ast.Constant)
    }
