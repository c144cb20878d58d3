"""`graphpar names`, and the command line as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_run import MODELS, graphpar
from zoo import MODELS as ZOO
from zoo import starred

from graphpar.errors import Diagnostic, GraphparError

ROOT = Path(__file__).parents[2]
TEXTS = Path(__file__).parent / "texts"


def test_the_tables(golden, monkeypatch):
    monkeypatch.chdir(ROOT / "tests" / "models")
    said = graphpar("names", "nanogpt.py:tiny", "gpt2_tp2")
    golden(TEXTS / "names.txt", said.out)
    assert (said.code, said.err) == (0, "")


def test_every_parameter_is_named_as_it_should_be():
    model = ZOO["nanogpt"]
    said = graphpar("names", model.write(Path()), "--json")
    found = {p["name"]: p["axes"] for p in json.loads(said.out)["parameters"]}
    assert found == {starred(model.tied.get(name, name)): axes for name, axes in model.axes.items()}


def test_an_op_without_a_rule_is_said_and_is_no_error_before_there_is_a_spec():
    said = graphpar("names", MODELS / "unknown_op.py", "--json")
    assert said.code == 0
    assert [u["op"] for u in json.loads(said.out)["unknown"]] == ["aten.special_airy_ai.default"]


def test_names_that_a_spec_has_and_the_model_has_not(monkeypatch):
    monkeypatch.chdir(MODELS)
    said = graphpar("names", "fine.py", "../specs/unknown-dimension.yaml")
    assert said.code == 2
    assert "error[unknown-dimension]" in said.err
    assert "embed.weight" in said.out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_does_not_wait_for_torch(arguments):
    assert without_torch(*arguments).returncode == 0


def test_a_mistake_in_a_spec_does_not_wait_for_torch(tmp_path):
    (tmp_path / "spec.yaml").write_text("version: 1\nmesh: {tp: 2}\nlayuot: []\n")
    done = without_torch("compile", str(MODELS / "fine.py"), str(tmp_path / "spec.yaml"))
    assert done.returncode == 2
    assert "did you mean `layout`?" in done.stderr


def test_errors_of_every_command_are_told_in_the_same_way(monkeypatch):
    def fails() -> None:
        raise GraphparError(Diagnostic("some-code", None, "a check failed", kind="check"))

    monkeypatch.setattr("graphpar.cli.names.command", click.Command("names", callback=fails))
    said = graphpar("names")
    assert (said.code, said.err) == (1, "error[some-code]: a check failed\n")
    assert "Traceback" in graphpar("names", "--traceback").err


def test_an_unknown_command_is_a_mistake_on_the_command_line():
    assert graphpar("compil").code == 2


def without_torch(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = "import sys; sys.modules['torch'] = None; from graphpar.cli import main; main(prog_name='graphpar')"
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_reader_that_stops_reading_is_no_mistake():
    command = [sys.executable, "-m", "graphpar", "names", str(MODELS / "fine.py")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as started:
        assert started.stdout is not None and started.stderr is not None
        started.stdout.close()
        assert started.stderr.read() == b""
        assert started.wait(120) == 1
