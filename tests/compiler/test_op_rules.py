"""Rules of a spec for ops that graphpar does not know: what is offered is safe, and what does not fit is told."""

import json
from pathlib import Path

import pytest
import yaml

from graphpar.builds.make import make
from graphpar.builds.specs import read_spec
from graphpar.errors import GraphparError
from graphpar.sources.door import reopen
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 8)
        self.up = nn.Linear(8, 12)
        self.head = nn.Linear(12, 32)

    def forward(self, idx, targets):
        h = self.up(self.embed(idx))
        h = OP
        h = h + 0 * OP
        return F.cross_entropy(self.head(h).flatten(0, 1), targets.flatten())
"""
LAYOUT = {"version": 1, "mesh": {"dp": 2, "tp": 2}, "layout": [{"batch": "dp"}, {"d_ff": "tp"}, {"vocab": "tp"}]}
CUMMAX = "torch.cummax(h, -1).values"
OPS = {
    "two results": (CUMMAX, "a! b! c! -> a b c"),
    "second result": ("h + torch.cummax(h, -1).indices", "a! b! c! -> a b c"),
    "kept": ("h / torch.renorm(h, 2, 0, 1.0).norm(p=3, dim=-1, keepdim=True)", None),
    "gone": ("h + torch.kthvalue(h, 2, -1).values.unsqueeze(-1)", "a! b! c! -> a b"),
    "two operands": ("torch.logaddexp(h, h * h)", "a! b! c!, a! b! c! -> a b c"),
}


def compiled(folder: Path, op: str, ops: dict[str, str] | None = None) -> Path:
    layout = {**LAYOUT, "layout": LAYOUT["layout"][:1] + LAYOUT["layout"][2:]}  # what `d_ff` is, the op may hide
    (folder / "tiny.py").write_text(MODEL.replace("OP", op))
    (folder / "spec.yaml").write_text(yaml.safe_dump({**layout, **({"ops": ops} if ops else {})}, sort_keys=False))
    make(str(folder / "tiny.py"), str(folder / "spec.yaml"), folder / "build", force=True)
    return folder / "build"


def refused(folder: Path, op: str, ops: dict[str, str] | None = None) -> list:
    with pytest.raises(GraphparError) as caught:
        compiled(folder, op, ops)
    return list(caught.value.diagnostics)


def verified(build: Path) -> None:
    spec = read_spec(str(build / "spec.yaml"))
    source = reopen(json.loads((build / "plan.json").read_text())["source"], build, spec.model)
    report = verify(build, Origin(source.construct, source.signature), spec, Options(length=8))
    assert report.passed, report.failures


@pytest.mark.parametrize(("op", "rule"), OPS.values(), ids=list(OPS))
def test_the_rule_that_is_offered_can_be_pasted(op: str, rule: str | None, tmp_path: Path) -> None:
    ops: dict[str, str] = {}
    for found in refused(tmp_path, op):
        assert found.code == "no-op-rule"
        ops |= yaml.safe_load(found.fix)["ops"]
    assert rule is None or list(ops.values()) == [rule]
    verified(compiled(tmp_path, op, ops))


def test_an_op_is_told_once_with_all_its_places(tmp_path: Path) -> None:
    (found,) = refused(tmp_path, CUMMAX)
    line = MODEL.splitlines().index("        h = OP") + 1
    assert (found.span.line, found.span.length) == (line, len("cummax"))
    assert [note.span.line for note in found.notes] == [line + 1]


def test_a_name_that_the_missing_rule_hides_is_not_told_too(tmp_path: Path) -> None:
    op = "torch.cummax(h, -1).values.flatten(1).unflatten(1, (-1, 12))"
    assert {found.code for found in refused(tmp_path, op, {"other.op": "a -> a"})} == {"no-op-rule"}


def test_a_rule_may_have_a_term_for_each_result(tmp_path: Path) -> None:
    verified(compiled(tmp_path, CUMMAX, {"aten.cummax.default": "a b c! -> a b c, a b c"}))


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ("a b, c -> a b", "the rule reads 2 tensors, and the op reads 1"),
        ("a b -> a b", "`a b` is not of 3 dimensions: [batch, seq, 12]"),
        ("a b c! -> a b", "`a b` is not of 3 dimensions: [batch, seq, 12]"),
        ("a b c! -> a b c, a b", None),  # the second result is not used
    ],
)
def test_a_rule_that_does_not_fit_is_told_at_the_rule(rule: str, why: str | None, tmp_path: Path) -> None:
    if why is None:
        compiled(tmp_path, CUMMAX, {"aten.cummax.default": rule})
        return
    (found,) = refused(tmp_path, CUMMAX, {"aten.cummax.default": rule})
    assert (found.code, found.span.file) == ("op-rule-misfit", str(tmp_path / "spec.yaml"))
    assert found.why[0] == why
    assert found.fix == 'aten.cummax.default: "a! b! c! -> a b c"'
