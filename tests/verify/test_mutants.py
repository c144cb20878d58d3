"""A verifier is trusted for the wrong programs that it rejects."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from compiled_zoo import compiled, origin
from zoo import MODELS, spec

from graphpar.language.schema import Spec
from graphpar.verify.report import Report
from graphpar.verify.verify import Options, verify

MODEL = "nanogpt_manual"  # two layers, biases, a vocabulary that is padded
pytestmark = pytest.mark.xdist_group(MODEL)


@dataclass(frozen=True)
class Mutant:
    """One edit of model.py: the first match of `pattern` becomes `replacement`; and which check has to fail."""

    name: str
    layout: str
    pattern: str
    replacement: str
    check: str
    first: str | None = None  # what the first difference has to mention


PLAIN, SEQ = "dp2xtp2", "dp2xtp2+sp"

MUTANTS = [
    Mutant("no sum after the feed-forward", SEQ, r"projected = reduce_scatter\(", "projected = slice_(", "gradients", "value in blocks.0"),
    Mutant("no sum after attention", PLAIN, r"proj = all_reduce\(proj, self.tp\)", "proj = proj * 1", "loss", "proj"),
    Mutant("no sum of the embedding", PLAIN, r"tok_emb = all_reduce\(tok_emb, self.tp\)", "tok_emb = tok_emb * 1", "loss"),
    Mutant("two sums", PLAIN, r"projected = all_reduce\(projected, self.tp\)", "projected = all_reduce(all_reduce(projected, self.tp), self.tp)", "loss", "value in blocks.0"),
    Mutant("gather with the gradient of one rank", SEQ, r"ln_2 = all_gather\(", "ln_2 = all_gather_same(", "gradients", "gradient of"),
    Mutant("no sum of the input's gradient", PLAIN, r"ln_2 = grad_all_reduce\(ln_2, self.tp\)", "ln_2 = ln_2 * 1", "gradients", "gradient of"),
    Mutant("the input's gradient summed twice", PLAIN, r"x = grad_all_reduce\(x, self.tp\)", "x = grad_all_reduce(grad_all_reduce(x, self.tp), self.tp)", "gradients"),
    Mutant("norm gradients not summed over tp", SEQ, r'weight=mesh.parameter\(32, grad_sum="dp tp"\)', 'weight=mesh.parameter(32, grad_sum="dp")', "gradients", "ln_1.weight"),
    Mutant("bias gradients summed once too often", PLAIN, r'bias=mesh.parameter\(32, grad_sum="dp"\)', 'bias=mesh.parameter(32, grad_sum="dp tp")', "gradients"),
    Mutant("the other axis", SEQ, r'self.tp = mesh\["tp"\]', 'self.tp = mesh["dp"]', "loss"),
    Mutant("padding takes part", SEQ, "vocab=97", "vocab=98", "loss", "returned value"),
    Mutant("rows of another rank", PLAIN, r"vocab_embedding\(idx, self.tok_emb.weight, self.tp\)", "F.embedding(idx % 49, self.tok_emb.weight)", "loss"),
    Mutant("a mean of means", SEQ, "/ count", "/ (2 * self.count(idx, targets))", "loss", "returned value"),
    Mutant("half the gradient", PLAIN, "/ count", "/ count / 2", "gradients"),
    Mutant("another label is ignored", PLAIN, "ignore_index=-1", "ignore_index=-100", "one step"),
    Mutant("bias before the sum", PLAIN, r"proj = F.linear\(y, self.proj.weight\)", "proj = F.linear(y, self.proj.weight, self.proj.bias)", "loss"),
    Mutant("no mask", PLAIN, r"position.unsqueeze\(-1\) < position", "position < position", "loss", "att"),
    Mutant("heads in the wrong order", PLAIN, r"k = key.unflatten\(-1, \(-1, 8\)\)", "k = key.unflatten(-1, (-1, 8)).flip(2)", "loss", "in blocks.0.attn"),
    Mutant("another constant", PLAIN, "0.044715", "0.044714", "gradients", "blocks.0.mlp.1"),
    Mutant("float32 inside", PLAIN, r"x = x \+ resid_drop", "x = (x.float() + resid_drop).double()", "gradients"),
    Mutant("one fixed size", PLAIN, r"scaled = self.mlp\[1\]\(projected\)", "scaled = self.mlp[1](projected).view(2, 24, 64)", "loss at other sizes"),
    Mutant("a collective for nothing", PLAIN, r"x = x \+ resid_drop", "x = x + resid_drop; all_reduce(x, self.tp)", "collectives, forward"),
    Mutant("no program", PLAIN, "class GPT", "class gpt", "one step"),
    Mutant("no Python", PLAIN, "class GPT", "klass GPT", "one step"),
]  # fmt: skip


@pytest.fixture(scope="module")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Path, Spec]]]:
    folder = tmp_path_factory.mktemp("builds")
    yield {name: (folder / name, compiled(MODEL, spec(name, MODELS[MODEL]), folder / name)) for name in (PLAIN, SEQ)}


Built = dict[str, tuple[Path, Spec]]


def verified(built: tuple[Path, Spec], folder: Path, edits: dict[str, Callable[[str], str]], **options: Any) -> Report:
    """Verify a copy of a build in which some files were edited."""
    shutil.copytree(built[0], folder, dirs_exist_ok=True)
    for file, edit in edits.items():
        text = (folder / file).read_text()
        edited = edit(text)
        assert edited != text, f"the edit of {file} finds nothing"
        (folder / file).write_text(edited)
    return verify(folder, origin(MODEL), built[1], Options(timeout=20, **{"capture": False, **options}))


def with_imports(text: str) -> str:
    """The program may use every collective."""
    return text.replace("from graphpar.runtime import (", "from graphpar.runtime import (\n    all_gather_same,", 1)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[m.name.replace(" ", "-") for m in MUTANTS])
def test_a_wrong_program_is_rejected(mutant: Mutant, builds: Built, tmp_path: Path) -> None:
    def edit(text: str) -> str:
        assert re.search(mutant.pattern, text), f"nothing to mutate: {mutant.pattern}"
        return re.sub(mutant.pattern, mutant.replacement.replace("\\", "\\\\"), with_imports(text), count=1)

    report = verified(builds[mutant.layout], tmp_path / "mutant", {"model.py": edit})
    failed = {check.name for check in report.failures}
    assert mutant.check in failed, failed
    if mutant.first is not None:
        assert report.first is not None
        assert mutant.first in report.first.what, report.first
        assert report.first.line is not None
        assert edited_line(builds[mutant.layout][0], tmp_path / "mutant") in report.first.lines, report.first
        assert len(report.first.lines) <= 6
    assert report.diagnostic().exit_code == 1


def edited_line(before: Path, after: Path) -> int:
    """The line of model.py that a mutant changed."""
    new = (after / "model.py").read_text().splitlines()
    old = with_imports((before / "model.py").read_text()).splitlines()
    return next(n for n, (a, b) in enumerate(zip(old, new, strict=True), start=1) if a != b)


WRONG_PLANS = {
    "a collective more than runs": (
        SEQ,
        lambda d: d["collectives"].append(d["collectives"][0]),
        "collectives, forward",
    ),
    "a collective fewer than runs": (SEQ, lambda d: d["collectives"].pop(), "collectives, forward"),
    "another number of bytes": (
        PLAIN,
        lambda d: d["collectives"][0].update(forward_elements="32*batch*seq"),
        "collectives, forward",
    ),
    "another order backward": (
        SEQ,
        lambda d: next(e for e in d["collectives"] if "loop" in e)["bodies"][0].reverse(),
        "collectives, backward",
    ),
    "another gradient sum": (
        SEQ,
        lambda d: d["parameters"]["blocks.0.ln_1.weight"].update(grad_sum=["dp"]),
        "declared gradient sums",
    ),
    "heads of another order": (
        PLAIN,
        lambda d: d["parameters"]["blocks.0.attn.key.weight"].update(dims=[[[[16, []], [2, ["tp"]]]], [[[32, []]]]]),
        "loss",
    ),
    "no such parameter": (PLAIN, lambda d: d["parameters"].pop("blocks.0.ln_1.weight"), "one step"),
}


@pytest.mark.parametrize("name", WRONG_PLANS)
def test_a_wrong_plan_is_rejected(name: str, builds: Built, tmp_path: Path) -> None:
    layout, change, check = WRONG_PLANS[name]

    def edit(text: str) -> str:
        document = json.loads(text)
        change(document)
        return json.dumps(document)

    report = verified(builds[layout], tmp_path / "mutant", {"plan.json": edit})
    assert check in {c.name for c in report.failures}, report.failures


def test_other_initial_values_are_rejected(builds: Built, tmp_path: Path) -> None:
    def edit(text: str) -> str:
        document = json.loads(text)
        draw = next(op for op in reversed(document["ops"]) if "normal_" in op["op"] or "uniform_" in op["op"])
        draw["args"][-1] = draw["args"][-1] * 1.5
        return json.dumps(document)

    report = verified(builds[PLAIN], tmp_path / "mutant", {"init.json": edit})
    assert {check.name for check in report.failures} == {"initial values"}
