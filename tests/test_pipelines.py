"""The law for pipelines: every zoo model in stages, under every schedule, alone and composed with data and tensor axes.

Each model is tested under a few of the combinations, so that all models meet all schedules; with GRAPHPAR_PIPELINES=all
under all of them (`make pipelines`, about two hours).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch.nn.functional as F
from compiled_zoo import parsed, told
from complete_reasons import assert_complete_reasons
from deep_zoo import deep
from torch import Tensor, nn
from zoo import MODELS

from graphpar.capture.capture import Signature
from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.language.schedules import SCHEDULES
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify

TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
MESHES: dict[str, tuple[dict[str, int], list[dict[str, str]]]] = {
    "pp2": ({"pp": 2}, []),
    "pp4": ({"pp": 4}, []),
    "pp2 x tp2": ({"pp": 2, "tp": 2}, TENSOR),
    "pp2 x dp2": ({"pp": 2, "dp": 2}, [{"batch": "dp"}]),
    "pp2 x dp2 x tp2": ({"pp": 2, "dp": 2, "tp": 2}, [{"batch": "dp"}, *TENSOR]),
    "pp2 x dp2 x tp2+sp": ({"pp": 2, "dp": 2, "tp": 2}, [{"batch": "dp"}, *TENSOR, {"seq": "tp"}]),
}
FEW = 1  # combinations of a model in a quick run


class Combination(NamedTuple):
    """A mesh with its layout, a schedule and the number of microbatches."""

    mesh: str
    schedule: str
    microbatches: int

    def __str__(self) -> str:
        return f"{self.mesh}, {self.schedule}, {self.microbatches}"

    @property
    def ranks(self) -> int:
        """Those of the pipeline."""
        return MESHES[self.mesh][0]["pp"]

    @property
    def layers(self) -> int:
        """Enough for its stages."""
        return max(4, self.ranks * SCHEDULES[self.schedule].usual)

    @property
    def legal(self) -> bool:
        """Whether the schedule runs so many microbatches."""
        schedule = SCHEDULES[self.schedule]
        in_rounds = not schedule.rounds or self.microbatches % self.ranks == 0
        return in_rounds and (not schedule.filled or self.microbatches >= self.ranks * schedule.usual)

    def spec(self) -> dict[str, Any]:
        """The whole spec."""
        mesh, layout = MESHES[self.mesh]
        pipeline = {"axis": "pp", "schedule": self.schedule, "microbatches": self.microbatches}
        return {"version": 1, "mesh": mesh, "layout": layout, "uneven": {"vocab": "pad"}, "pipeline": pipeline}


ALL = [Combination(mesh, schedule, m) for schedule in SCHEDULES for m in (1, 2, 4, 8) for mesh in MESHES]
LEGAL = [c for c in ALL if c.legal]


def chosen() -> Iterator[tuple[str, Combination]]:
    """All of them, or a few of each model, so that a run has each schedule and each mesh several times."""
    every = os.environ.get("GRAPHPAR_PIPELINES") == "all"
    for i, name in enumerate(MODELS):
        fit = [c for c in LEGAL if "tp" not in c.mesh or any("tp2" in word for word in MODELS[name].legal)]
        few = [fit[(i * FEW + k) * 7 % len(fit)] for k in range(FEW)]
        yield from ((name, c) for c in (fit if every else few))


@pytest.mark.parametrize(("model", "combination"), [pytest.param(n, c, id=f"{n}: {c}") for n, c in chosen()])
def test_stages_change_nothing(model: str, combination: Combination, tmp_path: Path):
    """Loss, gradients, norm and updates at 1e-9 in float64, tied copies bit for bit, and what runs is the plan."""
    assert_holds(model, combination.layers, combination.spec(), tmp_path)


@pytest.mark.parametrize("combination", [c for c in ALL if not c.legal], ids=str)
def test_what_a_schedule_cannot_run_is_refused(combination: Combination):
    with pytest.raises(GraphparError) as refused:
        parsed(combination.spec())
    assert [d.code for d in refused.value.diagnostics] == ["bad-microbatches"]


LISTED: dict[str, tuple[str, dict[str, Any]]] = {
    "a head on a stage of its own": (
        "gpt2",
        {
            "schedule": "1f1b",
            "microbatches": 3,
            "stages": ["wte, wpe, layers[0:1]", "layers[1:3]", "layers[3:4]", "ln_f, lm_head"],
        },
    ),
    "an embedding on a stage of its own": (
        "llama_gqa",
        {"schedule": "gpipe", "microbatches": 2, "stages": ["embed_tokens", "layers[0:2]", "layers[2:3]", "layers[3:4]"]},
    ),
    "uneven by choice": (
        "nanogpt",
        {"schedule": "zero_bubble", "microbatches": 4, "stages": ["layers[0:1]", "layers[1:2]", "layers[2:3]", "layers[3:4]"]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LISTED)
def test_stages_may_be_listed(case: str, tmp_path: Path):
    model, pipeline = LISTED[case]
    spec = {"version": 1, "mesh": {"pp": 4}, "layout": [], "pipeline": {"axis": "pp", **pipeline}}
    assert_holds(model, 4, spec, tmp_path)


def test_a_schedule_may_be_a_file(tmp_path: Path):
    """One that no name stands for: the first rank runs ahead by one more microbatch than 1f1b."""
    (tmp_path / "own.csv").write_text("0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n")
    pipeline = {"axis": "pp", "schedule": str(tmp_path / "own.csv"), "microbatches": 4}
    build = tmp_path / "build"
    assert_holds("qwen2", 4, {"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": pipeline}, build)
    assert (build / "schedule.csv").read_text().splitlines()[0].startswith("0F0,0F1,0F2,0B0")
    assert "schedule: schedule.csv" in (build / "spec.yaml").read_text()


def test_a_tied_head_on_the_rank_of_the_embedding_needs_no_sum(tmp_path: Path):
    """In the shape of a V the first rank has the last stage as well."""
    pipeline = {"axis": "pp", "schedule": "zbv", "microbatches": 2, "tied": "same_stage"}
    spec = {"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": pipeline}
    assert_holds("gpt2", 4, spec, tmp_path)
    assert "shared=" not in (tmp_path / "model.py").read_text()


def test_a_tied_head_on_another_rank_is_refused_where_it_may_not_be(tmp_path: Path):
    pipeline = {"axis": "pp", "schedule": "1f1b", "microbatches": 2, "tied": "same_stage"}
    with pytest.raises(GraphparError) as refused:
        assert_holds("gpt2", 4, {"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": pipeline}, tmp_path)
    assert [d.code for d in refused.value.diagnostics] == ["tied-apart"]


def test_masks_of_one_device_are_refused(tmp_path: Path):
    pipeline = {"axis": "pp", "schedule": "1f1b", "microbatches": 2}
    spec = {"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": pipeline, "numerics": {"rng": "exact"}}
    with pytest.raises(GraphparError, match="`rng: exact` is not available with a pipeline"):
        assert_holds("gpt2", 4, spec, tmp_path)


def test_one_rank_may_have_every_stage(tmp_path: Path):
    pipeline = {"axis": "pp", "schedule": "interleaved", "virtual": 4, "microbatches": 2}
    assert_holds("opt", 4, {"version": 1, "mesh": {"pp": 1}, "layout": [], "pipeline": pipeline}, tmp_path)


def test_modules_that_see_one_dimension_of_tokens(tmp_path: Path):
    """Their part of seq cannot be read off what they are given."""
    assert_holds("opt", 4, Combination("pp2 x dp2 x tp2+sp", "1f1b", 2).spec(), tmp_path)


def test_seven_layers_over_four_stages(tmp_path: Path):
    pipeline = {"axis": "pp", "schedule": "1f1b", "microbatches": 3}
    assert_holds("nanogpt", 7, {"version": 1, "mesh": {"pp": 4}, "layout": [], "pipeline": pipeline}, tmp_path)
    layers = [stage["layers"] for stage in json.loads((tmp_path / "plan.json").read_text())["pipeline"]["stages"]]
    assert layers == [[0, 2], [2, 4], [4, 6], [6, 7]]  # the last one has the head


class Block(nn.Module):
    """A feed-forward beside the stream."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, hidden)
        self.down = nn.Linear(hidden, 32)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Uneven(nn.Module):
    """The first and the last block differ from those between: no loop has them all."""

    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(48, 32)
        self.blocks = nn.ModuleList([Block(128), Block(64), Block(64), Block(48)])
        self.head = nn.Linear(32, 48, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tok(ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten(), ignore_index=-100)


@pytest.mark.parametrize("schedule", ["interleaved", "zbv"])
def test_blocks_that_differ(schedule: str, tmp_path: Path):
    pipeline = {"axis": "pp", "schedule": schedule, "microbatches": 2}
    spec = {"version": 1, "mesh": {"pp": 2, "tp": 2}, "layout": [{"d_ff": "tp"}], "pipeline": pipeline}
    assert_verified(Origin(Uneven, Signature(("ids", "labels"), {})), spec, tmp_path)


def assert_holds(model: str, layers: int, document: dict[str, Any], folder: Path) -> None:
    """Compile and verify a model of the zoo with so many layers."""
    assert_verified(deep(model, layers), document, folder)


def assert_verified(origin: Origin, document: dict[str, Any], folder: Path) -> None:
    """Compile and verify."""
    spec = parsed(document)
    compile_captured(origin.captured, spec, {"model": "model", "spec_file": "spec.yaml"}).write(folder)
    assert_complete_reasons(folder)
    report = verify(folder, origin, spec, Options(capture=False))
    assert report.passed, told(report)
