"""A pipeline's train.py as people start it: two processes under torchrun."""

import json

import pytest
import safetensors.torch
import torch
from pipelined_gpt import SEQ, Cut, Source
from recorded import recorded
from started import start

STEPS = ["--steps", "4", "--batch", "8", "--lr", "3e-3", "--warmup", "1", "--threads", "1", "--timeout", "20",
         "--eval-every", "2", "--eval-batches", "2"]  # fmt: skip
TEXT = "In the beginning was the word, and the word was with the pipeline. " * 12


def numbers(folder, key):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


def test_two_processes_train_and_save_the_whole_model(tmp_path):
    folder = Cut("interleaved", 2, 2, 4, layers=4).build(tmp_path, recorded(lambda: Source(4))[0])
    (folder / "text.txt").write_text(TEXT)
    ended = start(folder, *STEPS)
    assert ended.code == 0, ended.err
    assert ended.seconds < 60
    losses = numbers(folder / "run", "loss")
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert "pipeline over pp, interleaved: stages of layers 0-0, 1-1, 2-2, 3-3" in ended.out

    model = Source(4)
    model.load_state_dict(safetensors.torch.load_file(folder / "run" / "model.safetensors"), strict=True)
    text = torch.tensor(list(TEXT.encode()))
    held_out = text[len(text) - len(text) // 10 :]
    count = min((len(held_out) - 1) // SEQ, 4)
    windows = torch.stack([held_out[i * SEQ : (i + 1) * SEQ + 1] for i in range(count)])
    with torch.no_grad():
        expected = model(windows[:, :-1], windows[:, 1:]).item()
    assert numbers(folder / "run", "held_out_loss")[-1] == pytest.approx(expected, rel=1e-5)


def test_a_stage_that_sleeps_is_not_waited_for_longer_than_the_timeout(tmp_path):
    folder = Cut("1f1b", 2, 1, 4, layers=4).build(tmp_path, recorded(lambda: Source(4))[0])
    (folder / "text.txt").write_text(TEXT)
    program = (folder / "model.py").read_text()
    trouble = """
    model = Cut({})
    if mesh.rank == 1:
        model.held[1].register_forward_pre_hook(lambda *_: __import__("time").sleep(1000))
    return model
"""
    call = program[program.index("    return Cut(") :]
    arguments = call.removeprefix("    return Cut(").rstrip().removesuffix(".model(mesh)").removesuffix(")")
    program = program.replace(call, trouble.format(arguments).replace("\n    if", ".model(mesh)\n    if", 1))
    (folder / "model.py").write_text(program)
    ended = start(folder, *STEPS, "--no-save", "--timeout", "5")
    assert ended.code != 0
    assert ended.seconds < 40
    assert any("rank 0, step 0: stopped because a collective broke (train.py:" in line for line in ended.said), (
        ended.err
    )
