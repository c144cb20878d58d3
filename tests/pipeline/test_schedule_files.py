"""Orders in files: read back as they were, by us and by torch."""

from __future__ import annotations

import types

import pytest
from torch.distributed.pipelining import schedules as torchs

from graphpar.language import parse_spec
from graphpar.language.schedules import SCHEDULES
from graphpar.pipeline.file import read_order, spell_order
from graphpar.schedules.actions import homes
from graphpar.schedules.orders import order

SIZES = [(1, 2), (2, 4), (4, 8)]


def spec_of(folder, ranks, microbatches):
    pipeline = f"pipeline: {{axis: pp, schedule: own.csv, microbatches: {microbatches}}}\n"
    return parse_spec(f"version: 1\nmesh: {{pp: {ranks}}}\nlayout: []\n{pipeline}", str(folder / "spec.yaml"))


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_an_order_in_a_file_is_read_as_it_was(name, ranks, microbatches, tmp_path):
    made = order(name, ranks, SCHEDULES[name].usual, microbatches)
    (tmp_path / "own.csv").write_text(spell_order(made))
    read = read_order(spec_of(tmp_path, ranks, microbatches), ranks)
    assert dict(read) == dict(made) and homes(read) == homes(made)


@pytest.mark.parametrize("name", SCHEDULES)
def test_torch_reads_what_is_written(name, tmp_path):
    made = order(name, 4, SCHEDULES[name].usual, 8)
    (tmp_path / "own.csv").write_text(spell_order(made))
    reader = object.__new__(torchs._PipelineScheduleRuntime)  # it needs no process group to read, and to check
    reader.pipeline_order, reader._prepare_schedule_with_comms = {}, lambda order: None
    reader.pp_group_size, reader._num_stages, reader._n_microbatches = 4, len(homes(made)), 8
    reader._stages = []
    reader._load_csv(str(tmp_path / "own.csv"), "compute_only")
    written = [row.split(",") for row in spell_order(made).splitlines()]
    assert [[str(a) for a in reader.pipeline_order[rank]] for rank in range(4)] == written
    assert reader.stage_index_to_group_rank == homes(made)


def test_what_torch_writes_is_read_with_its_waits(tmp_path):
    held = [torchs_stage(i, 8, 4) for i in (0, 1)]
    made = torchs.ScheduleDualPipeV(held, 8, loss_fn=lambda *_: None, scale_grads=False)
    rows = [[str(a) if a is not None else "" for a in made.pipeline_order[rank]] for rank in range(4)]
    assert any("OVERLAP_F_B" in cell for row in rows for cell in row)
    (tmp_path / "own.csv").write_text("".join(", ".join(row) + "\r\n" for row in rows), newline="")
    assert dict(read_order(spec_of(tmp_path, 4, 8), 4)) == dict(order("dualpipev", 4, 2, 8))


def torchs_stage(index, stages, ranks):
    return types.SimpleNamespace(
        stage_index=index, num_stages=stages, group_size=ranks, group_rank=0, submod=None, is_first=False, is_last=False
    )
