"""train.py as people start it: two processes under torchrun, on a small text."""

import json
import math
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_build import build
from small_gpt import SmallGPT
from started import ROOT, Ended, start

STEPS = ["--steps", "6", "--batch", "8", "--lr", "3e-3", "--warmup", "2", "--threads", "1"]


def small(folder: Path, *, dp: int = 1, tp: int = 1, trouble: str = "") -> Path:
    build(folder, dp=dp, tp=tp, trouble=trouble)
    draw = random.Random(0)
    words = ["".join(draw.choices("ABCDEFGH", k=4)) for _ in range(12)]
    (folder / "text.txt").write_text(" ".join(draw.choices(words, k=1000)))
    return folder


def numbers(folder: Path, key: str) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if key in line]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """A whole run on tp=2."""
    folder = small(tmp_path_factory.mktemp("run") / "build", tp=2)
    ended = start(folder, *STEPS, "--accumulate", "2", "--save-every", "3", "--eval-every", "3")
    assert ended.code == 0, ended.err
    return folder, ended


def test_the_loss_falls_and_the_run_says_what_it_did(trained: tuple[Path, Ended]) -> None:
    folder, ended = trained
    losses = numbers(folder / "run", "loss")
    assert len(losses) == 6
    assert all(map(math.isfinite, losses))
    assert losses[0] == pytest.approx(math.log(97), abs=0.3)
    assert losses[-1] < losses[0] - 0.3
    assert len(numbers(folder / "run", "held_out_loss")) == 2
    assert "10 parameters with weight decay, 18 without" in ended.out
    assert ended.out.count("step 5 of 6") == 1  # rank 0 alone speaks
    assert (folder / "run" / "loss.png").exists()
    assert ended.said == []


def test_its_weights_give_its_loss_in_the_source_model(trained: tuple[Path, Ended]) -> None:
    folder, _ = trained
    model = SmallGPT()
    model.load_state_dict(safetensors.torch.load_file(folder / "run" / "model.safetensors"), strict=True)
    text = torch.tensor(list((folder / "text.txt").read_bytes()))
    held_out = text[len(text) - len(text) // 10 :]
    rows = held_out[: min(len(held_out) // 16, 8 * 4) * 16].view(-1, 16)
    with torch.no_grad():
        assert model(rows, rows).item() == pytest.approx(numbers(folder / "run", "held_out_loss")[-1], rel=1e-5)


def test_a_resumed_run_is_the_run_that_was_never_stopped(trained: tuple[Path, Ended]) -> None:
    folder, _ = trained
    again = folder / "again"
    shutil.copytree(folder / "run", again)
    shutil.rmtree(again / "checkpoints" / "step-00000006")
    (again / "checkpoints" / "latest").write_text("step-00000003")
    flags = ["--accumulate", "2", "--save-every", "3", "--eval-every", "3", "--out", "again", "--resume"]
    ended = start(folder, *STEPS, *flags)
    assert ended.code == 0, ended.err
    for key in ("loss", "grad_norm", "held_out_loss"):
        assert numbers(again, key) == numbers(folder / "run", key)
    for rank in range(2):
        found, expected = (
            torch.load(out / "checkpoints" / "step-00000006" / f"rank-{rank:05d}.pt") for out in (again, folder / "run")
        )
        for name, tensor in expected["tensors"].items():
            assert torch.equal(found["tensors"][name], tensor), name
        for name, moments in expected["moments"].items():
            assert all(torch.equal(found["moments"][name][key], value) for key, value in moments.items()), name


def test_another_mesh_gives_the_same_losses(trained: tuple[Path, Ended], tmp_path: Path) -> None:
    folder, _ = trained
    other = small(tmp_path / "build", dp=2)
    assert start(other, *STEPS, "--no-save").code == 0
    assert numbers(other / "run", "loss") == pytest.approx(numbers(folder / "run", "loss"), rel=1e-5)
    assert numbers(other / "run", "grad_norm") == pytest.approx(numbers(folder / "run", "grad_norm"), rel=1e-4)
    assert not (other / "run" / "checkpoints").exists()


ON_RANK_1 = "if self.mesh.rank == 1 and self.calls == 4: "


def test_a_rank_that_raises_ends_all_with_its_line(tmp_path: Path) -> None:
    folder = small(tmp_path / "build", dp=2, trouble=ON_RANK_1 + "raise ValueError('out of\\nluck')")
    ended = start(folder, *STEPS, "--no-save")
    assert ended.code != 0
    assert ended.seconds < 60
    line = next(line for line in ended.said if line.startswith("rank 1, step 3: ValueError: out of luck (model.py:"))
    others = [other for other in ended.said if other != line]
    assert others in ([], [f"rank 0, step 3: stopped because {line}"])


def test_a_killed_rank_is_named_by_its_peer(tmp_path: Path) -> None:
    folder = small(tmp_path / "build", dp=2, trouble=ON_RANK_1 + "__import__('os').kill(__import__('os').getpid(), 9)")
    ended = start(folder, *STEPS, "--no-save")
    assert ended.code != 0
    assert ended.seconds < 60
    assert ended.said == ["rank 0, step 3: stopped because rank 1, step 3 died"]


def test_a_rank_that_sleeps_is_not_waited_for_longer_than_the_timeout(tmp_path: Path) -> None:
    trouble = ON_RANK_1 + "__import__('time').sleep(1000)"
    folder = small(tmp_path / "build", dp=2, trouble=trouble)
    ended = start(folder, *STEPS, "--no-save", "--timeout", "5")
    assert ended.code != 0
    assert ended.seconds < 40
    assert 1 <= len(ended.said) <= 2
    # who waited, and where the other one is: at the statement that the test put into the model
    line = (folder / "model.py").read_text().splitlines().index(f"        {trouble}") + 1
    start_of, end = (
        "rank 0, step 3: stopped because a collective broke (train.py:",
        f"; rank 1, step 3 is at model.py:{line}",
    )
    assert any(said.startswith(start_of) and said.endswith(end) for said in ended.said), ended.err


@pytest.mark.parametrize(
    ("mesh", "arguments", "message"),
    [
        ({"dp": 2, "tp": 2}, STEPS, "mesh dp=2 x tp=2 has 4 ranks but torchrun started 2"),
        ({"dp": 2}, ["--load", "nothing.safetensors"], "nothing.safetensors does not exist"),
    ],
)
def test_a_mistake_that_all_ranks_make_is_one_line(
    tmp_path: Path, mesh: dict[str, int], arguments: list[str], message: str
) -> None:
    ended = start(small(tmp_path / "build", **mesh), *arguments)
    assert ended.code != 0
    assert ended.seconds < 30
    (line,) = ended.said  # whichever rank comes first
    assert line.startswith("train.py: error: ")
    assert message in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step-count", "3"], "train.py: error: unrecognized arguments: --step-count 3"),
        (["--data", "nothing.txt"], "train.py: error: --data nothing.txt does not exist"),
        (STEPS, "train.py: error: this program runs under torchrun: torchrun --nproc-per-node 2"),
        (["--batch", "3"], "train.py: error: --batch 3 does not divide by 2 data ranks x 1 microbatches = 2; 2 or 4"),
        (["--load", "no.safetensors", "--seq", "99"], "train.py: error: --seq 99 is more than the 16 positions"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    ended = start(small(tmp_path / "build", dp=2), *arguments, ranks=None)
    assert ended.code == 2
    assert ended.err.startswith(message)
    assert ended.err.count("\n") == 1


def test_the_runtime_asks_for_torch_alone() -> None:
    optional = ("rich", "safetensors", "tokenizers", "matplotlib", "sympy", "graphviz", "transformers", "yaml", "click")
    program = f"import sys, graphpar.runtime.training; print([name for name in {optional} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
