"""Files: .safetensors as others read and write them, metrics, and what a killed writer leaves."""

import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from small_build import plan as small_plan

from graphpar.runtime import tensor_file
from graphpar.runtime.files import whole_file
from graphpar.runtime.metrics import Metrics, plot
from graphpar.runtime.plan import read_plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import read_settings

TENSORS = {
    "w": torch.randn(5, 3),
    "half": torch.randn(7).to(torch.bfloat16),
    "flag": torch.tensor([True, False, True]),
    "scalar": torch.tensor(4),
    "none": torch.empty(0, 3),
}


def test_the_safetensors_library_reads_what_is_written(tmp_path: Path) -> None:
    shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in TENSORS.items()}
    with whole_file(tmp_path / "x.safetensors") as file:
        tensor_file.write(file, tensor_file.Layout(tensor_file.aligned(shapes), {"format": "pt"}), TENSORS.__getitem__)
    found = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert found.keys() == TENSORS.keys()
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


def test_what_the_safetensors_library_writes_is_read(tmp_path: Path) -> None:
    safetensors.torch.save_file(TENSORS, tmp_path / "x.safetensors", {"by": "it"})
    file = tensor_file.TensorFile(tmp_path / "x.safetensors")
    assert set(file.names) == set(TENSORS)
    assert file.metadata == {"by": "it"}
    assert all(torch.equal(file.read(name), TENSORS[name]) for name in TENSORS)


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    safetensors.torch.save_file(TENSORS, path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(UsageError, match="cut short"):
        [tensor_file.TensorFile(path).read(name) for name in TENSORS]
    path.write_bytes(b"no such thing")
    with pytest.raises(UsageError, match=r"is no \.safetensors file"):
        tensor_file.TensorFile(path)


def test_a_writer_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="disk"), whole_file(path) as file:
        file.write(b"ne")
        raise OSError("disk full")
    assert path.read_bytes() == b"old"


def test_metrics_of_a_resumed_run_replace_the_steps_done_again(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(small_plan(1, 1)))
    settings = read_settings(read_plan(tmp_path / "plan.json"), ["--data", "x", "--out", str(tmp_path), "--steps", "4"])
    with Metrics(settings, rank=0, first=0) as metrics:
        for step in range(3):
            metrics.step(step, loss=5.0 - step, grad_norm=1.0, lr=0.1)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 3, "lo')  # killed here
    with Metrics(settings, rank=0, first=2) as metrics:
        metrics.step(2, loss=7.0, grad_norm=1.0, lr=0.1)
        metrics.held_out(2, 6.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line.get("loss")) for line in lines] == [(0, 5.0), (1, 4.0), (2, 7.0), (2, None)]
    assert {"grad_norm", "lr", "tokens_per_second", "seconds"} <= lines[0].keys()
    plot(tmp_path)
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
