"""One label for each row of tokens: compiled, cut in every way, proven and trained."""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compiled_zoo import parsed, told
from small_gpt import Block, D
from torch import Tensor, nn

from graphpar.capture.capture import Signature
from graphpar.compiler import compile_captured
from graphpar.runtime.data import Batches
from graphpar.runtime.plan import read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.rows import read_rows
from graphpar.runtime.settings import read_settings
from graphpar.runtime.simulate import simulate
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify

CLASSES, VOCAB, WIDTH = 6, 50, D


class Classifier(nn.Module):
    """The last token of each row says its class."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.score = nn.Linear(WIDTH, CLASSES)

    def scores(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.score(x)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.scores(ids)[:, -1], labels)


class ToTheEnd(Classifier):
    """The last token that is no padding says it."""

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1], device=ids.device)
        last = (place * (ids != 0)).argmax(-1)
        return F.cross_entropy(self.scores(ids)[torch.arange(ids.shape[0], device=ids.device), last], labels)


def hugging_face() -> nn.Module:
    from transformers import LlamaConfig, LlamaForSequenceClassification

    sizes = {"hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 4, "vocab_size": VOCAB}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **heads, num_labels=CLASSES, pad_token_id=0, use_cache=False)
    return LlamaForSequenceClassification._from_config(config)  # pyright: ignore[reportPrivateUsage]


ORIGINS = {
    "last": Origin(Classifier, Signature(("ids", "labels"), {}, per_row=("labels",))),
    "to_the_end": Origin(ToTheEnd, Signature(("ids", "labels"), {}, per_row=("labels",))),
    "hugging_face": Origin(hugging_face, Signature(("input_ids", "labels"), {}, per_row=("labels",))),
}
LAYOUTS: dict[str, Any] = {
    "dp": {"mesh": {"dp": 2}, "layout": [{"batch": "dp"}]},
    "tp_classes": {"mesh": {"tp": 2}, "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"classes": "tp"}]},
    "sp": {"mesh": {"tp": 2}, "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"seq": "tp"}]},
    "cp": {"mesh": {"dp": 2, "cp": 2}, "layout": [{"batch": "dp"}, {"seq": "cp"}]},
    "pp": {"mesh": {"pp": 4}, "layout": [], "pipeline": {"axis": "pp", "schedule": "zero_bubble", "microbatches": 4}},
    "pp_tp": {
        "mesh": {"pp": 2, "tp": 2},
        "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"seq": "tp"}],
        "pipeline": {"axis": "pp", "schedule": "interleaved", "virtual": 2, "microbatches": 2},
    },
}


def build(model: str, layout: str, folder: Path) -> Any:
    spec = parsed({"version": 1, **LAYOUTS[layout]})
    made = compile_captured(ORIGINS[model].captured, spec, {"model": model, "spec_file": "spec.yaml"})
    made.write(folder)
    return spec


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", ORIGINS)
def test_every_layout_computes_the_same(model: str, layout: str, tmp_path: Path) -> None:
    if model == "hugging_face":
        pytest.importorskip("transformers")
    report = verify(tmp_path, ORIGINS[model], build(model, layout, tmp_path), Options())
    assert report.passed, told(report)


def test_the_plan_says_what_is_labelled(tmp_path: Path) -> None:
    build("last", "dp", tmp_path)
    plan = read_plan(tmp_path / "plan.json")
    assert (plan.labels, plan.classes, plan.vocab) == ("row", CLASSES, VOCAB)
    assert [dict(entry.cut) for entry in plan.inputs] == [{0: ("dp",)}, {0: ("dp",)}]
    program = (tmp_path / "train.py").read_text()
    assert "read_rows(settings, plan)" in program
    assert "read_tokens" not in program


def test_training_takes_rows_with_their_labels(tmp_path: Path) -> None:
    build("last", "dp", tmp_path)
    plan, drawn = read_plan(tmp_path / "plan.json"), Random(1)
    rows = [([drawn.randrange(VOCAB) for _ in range(8)], drawn.randrange(CLASSES)) for _ in range(43)]
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps({"ids": ids, "label": label}) + "\n" for ids, label in rows))
    settings = read_settings(plan, ["--data", str(data), "--seq", "8", "--batch", "8"])
    read = read_rows(settings, plan)
    ranks = simulate(plan.mesh, lambda mesh: Batches(read, plan, settings, mesh).training(0))
    ids, labels = (torch.cat([batch[name] for (batch,) in ranks]) for name in ("ids", "labels"))
    assert (ids.shape, labels.shape) == ((8, 8), (8,))
    trained = [(i, n) for i, n in rows[:39]]  # four are held out
    assert all((i.tolist(), int(n)) in trained for i, n in zip(ids, labels, strict=True))
    held = simulate(plan.mesh, lambda mesh: list(Batches(read, plan, settings, mesh).evaluation()))
    assert torch.cat([batch["labels"] for (batch,) in held]).tolist() == [n for _, n in rows[39:]] + 4 * [-100]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"ids": [1, 2], "label": 0}', "rows.jsonl:2 has 2 ids, and --seq is 3: rows have one length"),
        ('{"ids": [1, 2, 50], "label": 0}', "holds token 50, but the model's vocabulary has 50 (0 to 49)"),
        ('{"ids": [1, 2, -1], "label": 0}', "holds token -1"),
        ('{"ids": [1, 2, 3], "label": 6}', "has label 6, but the model's classes are 6 (0 to 5)"),
        ('{"ids": [1, 2, 3], "label": -1}', "has label -1"),
        ('{"ids": [1, 2, 3]}', "has no `ids` and `label`"),
        ("[1, 2, 3]", "has no `ids` and `label`"),
        ('{"ids": "abc", "label": 0}', "holds what is no whole number"),
        ('{"ids": [1, 2, 3], "label": true}', "holds what is no whole number"),
        ('{"ids": [1, 2', "is not JSON"),
    ],
)
def test_what_is_no_row_is_told_with_its_line(line: str, said: str, tmp_path: Path) -> None:
    build("last", "dp", tmp_path)
    plan, data = read_plan(tmp_path / "plan.json"), tmp_path / "rows.jsonl"
    data.write_text('{"ids": [1, 2, 3], "label": -100}\n' + line + "\n")
    settings = read_settings(plan, ["--data", str(data), "--seq", "3"])
    with pytest.raises(UsageError) as refused:
        read_rows(settings, plan)
    assert said in str(refused.value)


def test_nothing_that_is_no_data_is_read(tmp_path: Path) -> None:
    build("last", "dp", tmp_path)
    plan, empty = read_plan(tmp_path / "plan.json"), tmp_path / "rows.jsonl"
    empty.write_text("\n")
    for line, said in [
        (f"--data {tmp_path}", "is no file of rows"),
        (f"--data {empty}", "holds no rows"),
        (f"--data {empty} --tokenizer tokenizer.json", "rows hold token ids"),
    ]:
        with pytest.raises(UsageError, match=said):
            read_rows(read_settings(plan, line.split()), plan)
