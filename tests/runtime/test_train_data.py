"""One global order of samples, of which each rank takes its slice."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from small_build import plan as small_plan

from graphpar.runtime import simulate
from graphpar.runtime.data import Batch, Batches, check_shapes, sample
from graphpar.runtime.plan import Input, Plan, read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import read_settings
from graphpar.runtime.tokens import read_tokens


def small(folder: Path, dp: int, **changes: object) -> Plan:
    (folder / "plan.json").write_text(json.dumps(small_plan(dp=dp, tp=1)))
    return dataclasses.replace(read_plan(folder / "plan.json"), **changes)


def batches_of(
    folder: Path, dp: int, line: str, tokens: torch.Tensor, step: int, **changes: object
) -> list[list[Batch]]:
    plan = small(folder, dp, **changes)
    settings = read_settings(plan, ["--data", "x", *line.split()])
    return simulate(plan.mesh, lambda mesh: Batches(tokens, plan, settings, mesh).training(step))


TOKENS = torch.arange(1000) % 90


@pytest.mark.parametrize("step", [0, 5, 13])  # 13: over the end of a pass
def test_the_global_batch_does_not_depend_on_ranks_or_microbatches(tmp_path: Path, step: int) -> None:
    (alone,) = batches_of(tmp_path, 1, "--batch 8 --seq 8", TOKENS, step)
    whole = alone[0]["input_ids"]
    assert whole.shape == (8, 8)
    for ranks, microbatches in [(2, 1), (2, 2), (4, 2)]:
        line = f"--batch 8 --seq 8 --accumulate {microbatches}"
        found = batches_of(tmp_path, ranks, line, TOKENS, step)
        rows = [torch.cat([found[rank][index]["input_ids"] for rank in range(ranks)]) for index in range(microbatches)]
        assert torch.equal(torch.cat(rows), whole)


def test_one_pass_takes_each_window_once_and_the_next_has_another_order() -> None:
    first, second = ([sample(30, 30 * epoch + at, seed=1) for at in range(30)] for epoch in range(2))
    assert sorted(first) == sorted(second) == list(range(30))
    assert first != second


def test_labels_are_the_ids_or_the_tokens_that_follow(tmp_path: Path) -> None:
    (same,) = batches_of(tmp_path, 1, "--batch 2 --seq 8", TOKENS, 0)
    assert torch.equal(same[0]["labels"], same[0]["input_ids"])
    (following,) = batches_of(tmp_path, 1, "--batch 2 --seq 8", TOKENS, 0, labels="next")
    assert torch.equal(following[0]["labels"], (following[0]["input_ids"] + 1) % 90)


def test_a_cut_sequence_gives_each_rank_its_block(tmp_path: Path) -> None:
    inputs = tuple(Input(name, torch.int64, {1: ("dp",)}) for name in ("input_ids", "labels"))
    found = batches_of(tmp_path, 2, "--batch 2 --seq 8", TOKENS, 0, inputs=inputs, labels="next")
    (alone,) = batches_of(tmp_path, 1, "--batch 2 --seq 8", TOKENS, 0, labels="next")
    for name in ("input_ids", "labels"):
        assert torch.equal(torch.cat([rank[0][name] for rank in found], dim=1), alone[0][name])


def test_held_out_windows_come_once_each_and_the_rest_is_ignored(tmp_path: Path) -> None:
    plan = small(tmp_path, 1)
    settings = read_settings(plan, ["--data", "x", "--batch", "8", "--seq", "8", "--eval-batches", "9"])
    (found,) = simulate({"dp": 1, "tp": 1}, lambda mesh: list(Batches(TOKENS, plan, settings, mesh).evaluation()))
    labels = torch.cat([batch["labels"] for batch in found])
    assert labels.shape == (16, 8)  # 100 held-out tokens are 12 windows
    assert torch.equal(labels[:12].flatten(), TOKENS[900:996])
    assert (labels[12:] == -100).all()


def test_text_is_bytes_folders_are_read_in_order_and_bin_files_are_mapped(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "b.txt").write_bytes(b"\x00\xff")
    (tmp_path / "text" / "a.txt").write_bytes(b"A")
    assert read_tokens([tmp_path / "text"], None, 256).tolist() == [65, 0, 255]
    (tmp_path / "train.bin").write_bytes(bytes([1, 0, 0, 200]))
    assert read_tokens([tmp_path / "train.bin"], None, 51201).to(torch.int64).tolist() == [1, 51200]


def test_a_tokenizer_file_gives_the_ids(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "text.txt").write_text("a b a c")
    assert read_tokens([tmp_path / "text.txt"], tmp_path / "tokenizer.json", None).tolist() == [0, 1, 0, 2]


@pytest.mark.parametrize(
    ("content", "vocab", "message"),
    [
        (b"AB~", 97, "holds token 126 at position 2, but the model's vocabulary has 97 (0 to 96)"),
        (None, None, "text.txt does not exist"),
    ],
)
def test_data_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, vocab: int, message: str) -> None:
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        read_tokens([path], None, vocab)
    assert message in str(caught.value)


def test_a_short_text_is_refused_with_the_arithmetic(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        batches_of(tmp_path, 1, "--seq 16", torch.arange(90), 0)
    assert "has 90 tokens, of which the last 9 are held out" in str(caught.value)
    assert "give 160 or more or make --seq 16 smaller" in str(caught.value)


def test_labels_of_another_shape_are_refused(tmp_path: Path) -> None:
    tokenwise, ids = small(tmp_path, 1), torch.zeros(4, 12)
    per_row = dataclasses.replace(tokenwise, labels="row")
    check_shapes({"input_ids": ids, "labels": ids}, tokenwise)
    check_shapes({"input_ids": ids, "labels": ids[:, 0]}, per_row)
    for plan, labels, shape in [(tokenwise, ids.T, r"12, 4"), (tokenwise, ids[:, 0], "4,"), (per_row, ids, "4, 12")]:
        with pytest.raises(UsageError, match=rf"labels has shape \({shape}\), but input_ids has shape \(4, 12\)"):
            check_shapes({"input_ids": ids, "labels": labels}, plan)
