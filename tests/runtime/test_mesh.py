"""The mesh names its axes, fits the ranks or says why not, and makes parameters that nobody can mistake for filled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphpar.runtime import Mesh, MeshError, Parameters, simulate, upcast

ROOT = Path(__file__).parents[2]


def started(monkeypatch, **env):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)


def test_without_torchrun_it_says_how_to_start(monkeypatch):
    started(monkeypatch)
    with pytest.raises(
        MeshError, match=r"^this program runs under torchrun: torchrun --nproc-per-node 4 BUILD/train\.py$"
    ):
        Mesh.from_env({"dp": 2, "tp": 2})


def test_a_wrong_number_of_ranks_is_refused_before_any_group_is_made(monkeypatch):
    started(monkeypatch, RANK="1", WORLD_SIZE="3", LOCAL_RANK="1")
    with pytest.raises(MeshError) as caught:
        Mesh.from_env({"dp": 2, "tp": 2})
    text = "mesh dp=2 x tp=2 has 4 ranks but torchrun started 3; use torchrun --nproc-per-node 4"
    assert str(caught.value) == text
    assert not torch.distributed.is_initialized()


def test_more_ranks_than_gpus_are_refused(monkeypatch):
    started(monkeypatch, RANK="1", WORLD_SIZE="2", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(MeshError, match="torchrun started 2 ranks on a machine with 1 GPUs; use --nproc-per-node 1"):
        Mesh.from_env({"tp": 2})


def test_unknown_and_repeated_axes_are_errors():
    def f(mesh):
        for names, text in [("ep", "no axis 'ep'"), (("dp", "dp"), "each axis once"), (("dp", "x"), "no axis 'x'")]:
            with pytest.raises(MeshError, match=f"mesh dp=2 x tp=1 has {text}"):
                mesh[names]
        with pytest.raises(MeshError, match="no axis 'cp'"):
            mesh.parameter(2, grad_sum="dp cp")
        with pytest.raises(MeshError, match="no axis 'cp'"):
            mesh.random("cp")

    simulate({"dp": 2, "tp": 1}, f)


def test_coordinates_along_products():
    def f(mesh):
        assert mesh.coordinate("dp", "tp") == mesh["dp", "tp"].rank == mesh.rank
        assert mesh.coordinate("tp", "dp") == mesh["tp", "dp"].rank
        assert mesh.coordinate() == 0
        assert mesh[()].size == 1
        assert mesh.world.size == 6

    simulate({"dp": 2, "tp": 3}, f)


def test_parameters_show_that_nobody_filled_them():
    def f(mesh):
        held = Parameters(
            weight=mesh.parameter(2, 3, grad_sum="dp tp", sharded="tp"),
            bias=mesh.parameter(3, dtype=torch.bfloat16, trainable=False),
            scale=mesh.buffer(2),
            index=mesh.buffer(2, dtype=torch.int64, persistent=False),
            flag=mesh.buffer(1, dtype=torch.bool),
            none=None,
        )
        assert held.weight.isnan().all()
        assert held.bias.isnan().all()
        assert held.scale.isnan().all()
        assert held.index.tolist() == [torch.iinfo(torch.int64).min] * 2
        assert held.weight.grad_sum == ("dp", "tp")
        assert held.weight.shard_axes == ("tp",)
        assert not held.bias.requires_grad
        assert list(held.state_dict()) == ["weight", "bias", "scale", "flag"]
        assert held.none is None
        held.to(torch.float64)
        assert held.weight.grad_sum == ("dp", "tp")

    simulate({"dp": 1, "tp": 2}, f)


def test_upcast_never_narrows():
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert upcast(torch.ones(1, dtype=dtype)).dtype == torch.float32
    x = torch.ones(1, dtype=torch.float64)
    assert upcast(x) is x


def launch(world, *arguments):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world)]
    script = str(Path(__file__).parent / "launched.py")
    return subprocess.run(
        [*command, script, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_real_ranks_compute_what_simulated_ones_do(tmp_path):
    done = launch(2, "compare", str(tmp_path))
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["0", "1"]


def test_real_ranks_end_when_one_of_them_fails(tmp_path):
    done = launch(2, "fail", str(tmp_path))
    assert done.returncode != 0
    assert "rank 1 gives up" in done.stderr
