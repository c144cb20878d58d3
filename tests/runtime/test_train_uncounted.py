"""Models that divide their loss by themselves: their build trains, and what would change the loss is refused."""

import json
from pathlib import Path

import pytest
from started import start

from graphpar.builds.make import make
from graphpar.builds.specs import read_spec
from graphpar.sources.door import reopen
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify

MODEL = """
import torch, torch.nn as nn, torch.nn.functional as F

class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 8)
        self.up = nn.Linear(8, 12)
        self.head = nn.Linear(12, 256)

    def forward(self, idx, targets):
        logits = self.head(self.up(self.embed(idx)).relu())
        return LOSS
"""
SPEC = """version: 1
mesh: {dp: 2}
layout:
  - batch: dp
"""
LOSSES = {
    "mean of losses": "F.cross_entropy(logits.transpose(1, 2), targets, reduction='none').mean()",
    "gathered": "-F.log_softmax(logits, -1).gather(-1, targets.unsqueeze(-1)).mean()",
}
SHIFTED = "F.cross_entropy(logits[:, :-1].transpose(1, 2), targets[:, 1:], reduction='none').mean()"


def built(folder: Path, loss: str) -> Path:
    """The build of the model with this loss, with a text to train on."""
    (folder / "tiny.py").write_text(MODEL.replace("LOSS", loss))
    (folder / "spec.yaml").write_text(SPEC)
    make(str(folder / "tiny.py"), str(folder / "spec.yaml"), folder / "build")
    (folder / "build" / "text.txt").write_text("to be or not to be, that is the question. " * 20)
    return folder / "build"


def planned(folder: Path) -> dict:
    return json.loads((folder / "plan.json").read_text())


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_it_trains_and_is_verified(loss: str, tmp_path: Path) -> None:
    build = built(tmp_path, loss)
    document = planned(build)
    assert (document["count"], document["labels"]) == (False, "next")
    assert (document["ignore_index"] is None) == ("gather" in loss)  # a gather promises nothing of -100
    ended = start(build, "--steps", "2", "--seq", "8", "--batch", "4", "--lr", "1e-2", "--warmup", "0")
    assert ended.code == 0, ended.err
    lines = [json.loads(line) for line in (build / "run" / "metrics.jsonl").read_text().splitlines()]
    first, second, held_out = (line.get("loss") or line["held_out_loss"] for line in lines)
    assert second < first
    assert held_out == pytest.approx(second, abs=0.5)
    spec = read_spec(str(build / "spec.yaml"))
    source = reopen(document["source"], build, spec.model)
    report = verify(build, Origin(source.construct, source.signature), spec, Options(length=8))
    assert report.passed, report.failures
    assert any(check.name == "after 3 steps: parameters" for check in report.checks)


def test_a_loss_that_does_not_add_up_is_not_accumulated(tmp_path: Path) -> None:
    ended = start(built(tmp_path, LOSSES["gathered"]), "--accumulate", "2", ranks=None)
    assert ended.code == 2
    assert "--accumulate 2 would change the loss" in ended.err


def test_a_shift_of_its_own_is_not_done_twice(tmp_path: Path) -> None:
    assert planned(built(tmp_path, SHIFTED))["labels"] == "same"


def test_held_out_rows_are_never_made_up(tmp_path: Path) -> None:
    build = built(tmp_path, LOSSES["mean of losses"])
    ended = start(build, "--steps", "1", "--seq", "8", "--batch", "12", "--no-save")
    assert ended.code != 0
    assert "has 10 windows of 8 tokens, fewer than the 12 rows of a microbatch" in ended.err
    assert "--batch 10 or --eval-batches 0 would do" in ended.err
