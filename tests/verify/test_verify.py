"""Whole verifications: what a report says, the command, and real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from compiled_zoo import compiled, origin, told
from torch import nn
from zoo import MODELS, spec

from graphpar.capture.capture import Signature
from graphpar.compiler import compile_captured, compile_model
from graphpar.errors import GraphparError, render
from graphpar.language.parse import parse_spec
from graphpar.sources.door import open_model
from graphpar.verify.command import command
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify

MODEL = "tied_functional"
pytestmark = pytest.mark.xdist_group(MODEL)
ROUNDS = r"""
import torch, torch.nn as nn, torch.nn.functional as F

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.up = nn.Linear(8, 12)
        self.down = nn.Linear(12, 8)
        self.head = nn.Linear(8, 20)

    def forward(self, idx, targets):
        x = self.embed(idx)
        x = x + self.down(self.up(x).relu())
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())
"""
SPEC = "version: 1\nmesh: {dp: 2, tp: 2}\nlayout:\n  - batch: dp\n  - d_ff: tp\n  - vocab: tp\n"


def build_file(folder: Path) -> Path:
    """A model in a file and its build."""
    (folder / "tiny.py").write_text(ROUNDS)
    found = open_model(str(folder / "tiny.py"))
    build = folder / "build"
    made = compile_model(
        found.construct,
        found.signature,
        parse_spec(SPEC, "spec.yaml"),
        {**found.record(build), "spec_file": "spec.yaml"},
    )
    made.write(build)
    return build


def test_the_report_says_what_was_compared(tmp_path):
    layout = compiled(MODEL, spec("dp2xtp2", MODELS[MODEL]), tmp_path)
    report = verify(tmp_path, origin(MODEL), layout)
    assert report.passed, told(report)
    assert report.first is None
    report.raise_if_failed()
    document = json.loads(json.dumps(report.json()))
    assert document["passed"] is True
    assert document["mesh"] == {"dp": 2, "tp": 2}
    assert document["sizes"] == "batch x seq = 4 x 24"
    names = [check["name"] for check in document["checks"]]
    assert len(names) == len(set(names))
    for word in (
        "loss",
        "gradients",
        "initial values",
        "collectives, backward",
        "after 3 steps: exp_avg_sq",
        "causality",
    ):
        assert word in names
    assert all(check["compared"] for check in document["checks"])


def test_the_same_seed_gives_the_same_numbers(tmp_path):
    layout = compiled(MODEL, spec("tp2+sp", MODELS[MODEL]), tmp_path)
    first, second, other = (
        verify(tmp_path, origin(MODEL), layout, Options(seed=seed, rows=2, length=8)) for seed in (1, 1, 2)
    )
    assert first.passed and second.passed and other.passed
    assert first.checks == second.checks
    assert first.checks != other.checks


def test_what_is_too_large_is_refused_with_the_arithmetic(tmp_path):
    layout = compiled(MODEL, spec("dp2", MODELS[MODEL]), tmp_path)
    with pytest.raises(GraphparError) as caught:
        verify(tmp_path, origin(MODEL), layout, Options(memory=1 << 20))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "memory"
    assert "2 ranks" in render(diagnostic)
    assert "--memory" in render(diagnostic)
    assert caught.value.exit_code == 1


def test_a_folder_that_is_no_build_is_refused(tmp_path):
    with pytest.raises(GraphparError, match="not a complete build"):
        verify(tmp_path, origin(MODEL), parse_spec(SPEC, "spec.yaml"))


def test_another_model_than_the_one_compiled_is_found_out(tmp_path):
    """The same shapes and names, other mathematics: only comparison with the source can tell."""

    class Body(nn.Module):
        factor = 1.0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.tanh() * self.factor + x

    class Model(nn.Module):
        factor = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.embed, self.body, self.head = nn.Embedding(20, 8), Body(), nn.Linear(8, 20)
            self.body.factor = self.factor

        def forward(self, idx: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            logits = self.head(self.body(self.embed(idx)))
            return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    class Other(Model):
        factor = 1.01

    compiled_from = Origin(Model, Signature(("idx", "targets"), {}))
    layout = parse_spec("version: 1\nmesh: {tp: 2}\nlayout:\n  - vocab: tp\n", "spec.yaml")
    compile_captured(compiled_from.captured, layout, {"model": "Model", "spec_file": "spec.yaml"}).write(tmp_path)
    assert verify(tmp_path, compiled_from, layout).passed
    mixed = Origin(Other, compiled_from.signature)
    mixed.__dict__["captured"] = compiled_from.captured
    report = verify(tmp_path, mixed, layout)
    failed = {check.name.partition(",")[0] for check in report.failures}
    assert failed == {"captured program", "captured program in float64", "causality"}
    assert report.first is not None
    assert report.first.what == "what body returns"
    assert "def forward" in (tmp_path / "model.py").read_text().splitlines()[(report.first.line or 0) - 1]


def test_the_command_prints_a_table_or_json(tmp_path):
    build = build_file(tmp_path)
    shown = CliRunner().invoke(command, [str(build)], env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert "all checks passed" in shown.stdout
    assert "gradients" in shown.stdout
    printed = CliRunner().invoke(command, [str(build), "--json", "--seed", "3"])
    assert printed.exit_code == 0, printed.output
    assert json.loads(printed.stdout)["seed"] == 3


def test_the_command_fails_with_the_place_of_the_first_difference(tmp_path):
    build = build_file(tmp_path)
    text = (build / "model.py").read_text()
    (build / "model.py").write_text(text.replace("/ count", "/ count / 2"))
    result = CliRunner().invoke(command, [str(build)])
    assert isinstance(result.exception, GraphparError)
    (diagnostic,) = result.exception.diagnostics
    assert (diagnostic.code, diagnostic.exit_code) == ("verify", 1)
    told_ = render(diagnostic)
    assert "/ count / 2" in told_
    assert "first difference: the returned value in the model" in told_


@pytest.mark.parametrize("layout", ["dp2", "tp2+sp"])
def test_real_processes_compute_the_same(layout, tmp_path):
    document = spec(layout, MODELS[MODEL])
    report = verify(
        tmp_path, origin(MODEL), compiled(MODEL, document, tmp_path), Options(launch=True, capture=False, timeout=120)
    )
    assert report.passed, told(report)


def test_processes_that_fail_are_told_once(tmp_path):
    layout = compiled(MODEL, spec("tp2", MODELS[MODEL]), tmp_path)
    text = (tmp_path / "model.py").read_text()
    (tmp_path / "model.py").write_text(text.replace("/ count", "/ nothing"))
    report = verify(tmp_path, origin(MODEL), layout, Options(launch=True, capture=False, timeout=120))
    assert not report.passed
    assert any("NameError: name 'nothing' is not defined" in check.detail for check in report.failures)


@pytest.mark.parametrize(
    ("option", "value", "why", "fix"),
    [
        ("--length", "0", "it is at least 1, and 0 < 1", "--length 1"),
        ("--rows", "3", "it is cut into 2 parts: 3 mod 2 = 1", "--rows 2"),
    ],
)
def test_a_size_that_was_asked_for_is_taken_or_refused(tmp_path, option, value, why, fix):
    result = CliRunner().invoke(command, [str(build_file(tmp_path)), option, value])
    assert isinstance(result.exception, GraphparError)
    (diagnostic,) = result.exception.diagnostics
    assert diagnostic.code == "size"
    assert diagnostic.why == (why,)
    assert diagnostic.fix.endswith(fix)
