"""Builds with stages as people start them: processes under torchrun, on one host and on two, against one process."""

from __future__ import annotations

import array
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
from compiled_zoo import compiled
from started import ROOT, start
from torch.testing import assert_close

MODEL = "nanogpt_without_bias"  # a tied head, 97 tokens, nothing dropped, 4 layers
STEPS = "--steps 4 --batch 16 --lr 3e-3 --warmup 1 --threads 1 --timeout 30 --eval-batches 2 --seq 16".split()
TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]

pytestmark = pytest.mark.xdist_group("pipelines under torchrun")


def built(folder: Path, mesh: dict[str, int], layout: list[Any], **pipeline: Any) -> Path:
    """A build with data beside it."""
    spec: dict[str, Any] = {"version": 1, "mesh": mesh, "layout": layout, "uneven": {"vocab": "pad"}}
    compiled(MODEL, spec | ({"pipeline": {"axis": "pp", **pipeline}} if pipeline else {}), folder)
    draw = random.Random(0)
    (folder / "text.bin").write_bytes(array.array("H", [draw.randrange(97) for _ in range(6000)]).tobytes())
    return folder


def numbers(folder: Path) -> list[tuple[float, float]]:
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    return [(line.get("loss", 0.0), line.get("grad_norm", line.get("held_out_loss"))) for line in lines]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same model in one process, with as many microbatches: they are evaluated on as many rows."""
    folder = built(tmp_path_factory.mktemp("alone"), {"dp": 1}, [{"batch": "dp"}])
    ended = start(folder, "--data", "text.bin", *STEPS, "--accumulate", "4", ranks=1)
    assert ended.code == 0, ended.err
    return folder


def assert_same(folder: Path, alone: Path) -> None:
    """Loss, norm and held-out loss of each step, and the weights after the last."""
    for ours, theirs in zip(numbers(folder), numbers(alone), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-5)
    saved, whole = (safetensors.torch.load_file(f / "run" / "model.safetensors") for f in (folder, alone))
    assert saved.keys() == whole.keys()
    for name, tensor in saved.items():
        assert_close(tensor, whole[name], rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}")


def test_two_processes(alone: Path, tmp_path: Path):
    folder = built(tmp_path, {"pp": 2}, [], schedule="1f1b", microbatches=4)
    ended = start(folder, "--data", "text.bin", *STEPS, ranks=2)
    assert ended.code == 0, ended.err
    assert "step 3 of 4" in ended.out
    assert_same(folder, alone)


def test_four_processes(alone: Path, tmp_path: Path):
    folder = built(tmp_path, {"pp": 2, "tp": 2}, [*TENSOR, {"seq": "tp"}], schedule="interleaved", microbatches=4)
    ended = start(folder, "--data", "text.bin", *STEPS, ranks=4)
    assert ended.code == 0, ended.err
    assert_same(folder, alone)


def test_two_launchers_meet_over_loopback(alone: Path, tmp_path: Path):
    """As on two hosts, each with one process."""
    folder = built(tmp_path, {"pp": 2}, [], schedule="zbv", microbatches=4)
    port = _free_port()
    nodes = [_launched(folder, node, port) for node in range(2)]
    for node in nodes:
        _, err = node.communicate(timeout=90)
        assert node.returncode == 0, err
    assert_same(folder, alone)


DIES = """

def _dies(*received, **inputs):
    import os

    os.kill(os.getpid(), 9)


GPTLast.forward = _dies
"""


def test_a_killed_rank_ends_all_stages_with_its_name(tmp_path: Path):
    folder = built(tmp_path, {"pp": 2}, [], schedule="1f1b", microbatches=4)
    with (folder / "model.py").open("a") as program:
        program.write(DIES)
    ended = start(folder, "--data", "text.bin", *STEPS, "--no-save", ranks=2)
    assert ended.code != 0
    assert ended.seconds < 60
    assert ended.said == ["rank 0, step 0: stopped because rank 1, step 0 died"]


def test_the_wrong_number_of_microbatches_is_told(tmp_path: Path):
    folder = built(tmp_path, {"pp": 1}, [], schedule="1f1b", microbatches=4)
    ended = start(folder, "--data", "text.bin", *STEPS, "--accumulate", "2", ranks=1)
    assert ended.said and "--accumulate 4" in ended.said[0], ended.err


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _launched(folder: Path, node: int, port: int) -> subprocess.Popen[str]:
    place = f"--nnodes 2 --nproc-per-node 1 --node-rank {node} --master-addr 127.0.0.1 --master-port {port}".split()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", *place, "train.py", "--data", "text.bin", *STEPS]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
