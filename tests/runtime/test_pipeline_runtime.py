"""What a pipeline's step sends, draws, refuses and keeps in memory, and how it ends in trouble."""

import hashlib
import time
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from pipelined_gpt import SEQ, Block, Cut, D, Part, Source, batches, fill
from torch import nn
from torch.distributed.pipelining import schedules
from torch.utils.checkpoint import checkpoint

from graphpar.runtime import CollectiveError, Executed, GradientSums, gradient_norm, simulate, stream_seed
from graphpar.runtime.loss import held_out_loss, matmul_precision
from graphpar.runtime.pipeline import Pipeline, read_schedule
from graphpar.runtime.plan import PlanError
from graphpar.runtime.problems import UsageError

COUNT = torch.tensor(100)


def on_ranks(cut, folder, fn, **how):
    """What fn(pipeline, its microbatches) returns on each rank."""
    plan = cut.plan(folder)
    torch.manual_seed(0)
    source = Source(cut.count)
    tensors = [*source.named_parameters(), *source.named_buffers()]

    def rank(mesh):
        model = cut.model(mesh)
        fill(model, tensors)
        pipeline = Pipeline(
            model, plan, mesh, cut.schedule, matmul_precision(how.get("precision", "fp32"), mesh.device)
        )
        return fn(pipeline, batches(cut.microbatches, 2))

    return simulate(cut.sizes, rank, log=True, timeout=how.get("timeout", 20))


def small(name="1f1b", virtual=1, microbatches=4, **how):
    return Cut(name, 2, virtual, microbatches, layers=4, **how)


def test_messages_are_those_of_the_schedule_and_nothing_else(tmp_path):
    def run(pipeline, mine):
        pipeline.step(mine, COUNT)
        return pipeline.mesh.log

    first, last = on_ranks(small(), tmp_path, run)
    x = (2, SEQ, D), 2 * SEQ * D * 4
    loss = Executed("step", "broadcast", "pp", (), 8)
    assert Counter(first) == {
        Executed("forward", "send", "pp", *x): 4,
        Executed("backward", "recv", "pp", *x): 4,
        loss: 1,
    }
    assert Counter(last) == {
        Executed("forward", "recv", "pp", *x): 4,
        Executed("backward", "send", "pp", *x): 4,
        loss: 1,
    }


def test_what_the_stages_share_is_summed_last_and_a_missing_gradient_counts_as_zeros(tmp_path):
    def run(pipeline, mine):
        model = pipeline.model
        sums = GradientSums(model, pipeline.mesh)
        shared = dict(model.named_parameters())["wte.weight"]
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        if pipeline.mesh.rank:
            shared.grad = None
        pipeline.mesh.log.clear()
        sums.finish()
        return shared.grad, pipeline.mesh.log

    (one, log), (other, _) = on_ranks(small(), tmp_path, run)
    assert torch.equal(one, other)
    assert torch.equal(one, torch.ones_like(one))
    assert [(e.phase, e.kind, e.axis) for e in log] == [("step", "all_reduce", "pp")]


def test_only_some_of_four_ranks_share_and_the_norm_counts_each_element_once(tmp_path):
    def run(pipeline, mine):
        for p in pipeline.model.parameters():
            p.grad = torch.ones_like(p)
        GradientSums(pipeline.model, pipeline.mesh).finish()
        wte = dict(pipeline.model.named_parameters()).get("wte.weight")
        return gradient_norm(pipeline.model, pipeline.mesh), wte if wte is None else wte.grad

    found = on_ranks(Cut("1f1b", 4, 1, 2, layers=4), tmp_path, run)
    source = Source(4)
    elements = sum(p.numel() for p in source.parameters()) + 3 * source.wte.weight.numel()  # 2 squared
    assert len({norm.item() for norm, _ in found}) == 1
    assert found[0][0].item() == pytest.approx(elements**0.5)
    assert [grad is None for _, grad in found] == [False, True, True, False]
    assert all((grad == 2).all() for _, grad in found if grad is not None)


def test_every_stage_and_microbatch_draws_its_own_masks_and_a_step_repeats(tmp_path):
    def run(pipeline, mine):
        draws = []
        for stage in pipeline.model.held.values():
            stage.register_forward_pre_hook(lambda *_: draws.append(pipeline.mesh.random().generator.initial_seed()))
        losses = [pipeline.step(mine, COUNT, seed=1, step=step).item() for step in (0, 0, 1)]
        return losses, draws[:8], draws[8:16], draws[16:]

    (one, *first), (other, *second) = on_ranks(small("zbv", 2, p=0.5), tmp_path, run)
    assert one == other
    assert one[0] == one[1] != one[2]
    assert first[0] == first[1]
    every = [draw for draws in (first[0], first[2], second[0], second[2]) for draw in draws]
    assert len(set(every)) == len(every) == 2 * 4 * 4  # steps, stages, microbatches


@pytest.mark.parametrize("name", ["1f1b", "zero_bubble"])
def test_blocks_computed_again_draw_the_same_masks(tmp_path, monkeypatch, name):
    def again(self, x):
        return checkpoint(plain, self, x, use_reentrant=False, context_fn=self.replay, preserve_rng_state=False)

    def run(pipeline, mine):
        pipeline.step(mine, COUNT, seed=1)
        return [p.grad for p in pipeline.model.parameters()]

    plain = Block.forward
    expected = on_ranks(small(name, p=0.5), tmp_path, run)
    monkeypatch.setattr(Block, "forward", again)
    for found, want in zip(on_ranks(small(name, p=0.5), tmp_path, run), expected):
        assert all(torch.equal(a, b) for a, b in zip(found, want))


def test_the_first_stage_draws_what_a_program_without_pipeline_always_did():
    text = repr((3, 2, 1, [("dp", 1)]))
    assert stream_seed(3, 2, 1, {"dp": 1}) == int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1
    assert stream_seed(3, 2, 1, {"dp": 1}, 0) == stream_seed(3, 2, 1, {"dp": 1}) != stream_seed(3, 2, 1, {"dp": 1}, 1)


@pytest.mark.parametrize("name", ["1f1b", "zero_bubble"])
def test_autocast_may_narrow_what_is_sent_in_the_plans_dtype(tmp_path, name):
    def run(pipeline, mine):
        return pipeline.step(mine, COUNT)

    wide, narrow = (on_ranks(small(name), tmp_path, run, precision=p)[0] for p in ("fp32", "bf16"))
    assert narrow.item() == pytest.approx(wide.item(), rel=2e-2)
    assert narrow.item() != wide.item()


def test_a_narrow_value_is_sent_in_the_plans_dtype(tmp_path):
    def run(pipeline, mine):
        pipeline.model.held[pipeline.mesh.rank].register_forward_hook(lambda *a: a[-1].bfloat16())
        pipeline.step(mine, COUNT)
        return {entry.bytes for entry in pipeline.mesh.log if entry.kind in ("send", "recv")}

    assert on_ranks(small(), tmp_path, run) == [{2 * SEQ * D * 4}] * 2


@pytest.mark.parametrize("name", ["1f1b", "zero_bubble"])
def test_what_is_frozen_gets_no_gradient(tmp_path, name):
    def run(pipeline, mine):
        for key, p in pipeline.model.named_parameters():
            p.requires_grad_(not key.startswith(("w", "h.0")))  # nothing of the first layer, on which stage 0 ends
        pipeline.step(mine, COUNT)
        GradientSums(pipeline.model, pipeline.mesh).finish()
        return {key for key, p in pipeline.model.named_parameters() if p.grad is None}

    first, last = on_ranks(small(name), tmp_path, run)
    assert all(key.startswith(("w", "h.0")) for key in first | last)
    assert "wte.weight" in first & last


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("zbv", 2)])
def test_the_held_out_loss_is_that_of_the_whole_model_on_every_rank(tmp_path, name, virtual):
    def run(pipeline, mine):
        other = [{key: x[:1, :4] for key, x in batch.items()} for batch in mine]  # of another shape than the steps
        pipeline.step(mine, COUNT)
        autocast = matmul_precision("fp32", pipeline.mesh.device)
        args = pipeline.plan, pipeline.mesh, autocast, pipeline
        found = [held_out_loss(pipeline.model, lambda b=b: iter(b), *args) for b in (mine, other)]
        assert pipeline.model.training
        return found

    found = on_ranks(small(name, virtual, p=0.5), tmp_path, run)
    torch.manual_seed(0)
    source, mine = Source(4), batches(4, 2)
    whole = {key: torch.cat([batch[key] for batch in mine]) for key in mine[0]}
    part = {key: torch.cat([batch[key][:1, :4] for batch in mine]) for key in mine[0]}
    assert found[0] == found[1]
    assert found[0] == pytest.approx([source(**whole).item(), source(**part).item()], rel=1e-5)


def test_another_number_of_microbatches_is_refused_with_the_right_one(tmp_path):
    def run(pipeline, mine):
        pipeline.step(mine[:3], COUNT)

    with pytest.raises(UsageError, match="3 microbatches were given, but 1f1b was planned for 4: a step takes 4"):
        on_ranks(small(), tmp_path, run)


def test_microbatches_of_several_shapes_are_refused(tmp_path):
    def run(pipeline, mine):
        mine[1] = {key: x[:1] for key, x in mine[1].items()}
        pipeline.step(mine, COUNT)

    with pytest.raises(UsageError, match=r"one shape, but are 2 x 6, 1 x 6, 2 x 6, 2 x 6 \(rows x tokens\)"):
        on_ranks(small(), tmp_path, run)


def test_a_model_that_does_not_fit_its_plan_is_named(tmp_path):
    def run(pipeline, mine):
        pipeline.step([{key: torch.cat([x, x], 1)[:, :4] for key, x in batch.items()} for batch in mine], COUNT)

    cut = small()
    document = cut.document()
    document["pipeline"]["stages"][0]["sends"][0]["shape"][-1] = "7"
    cut.document = lambda: document
    with pytest.raises(PlanError, match=r"stage 0 sends float32\[2, 4, 8\]; plan.json says float32\[2, 4, 7\]"):
        on_ranks(cut, tmp_path, run)


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        ("0F0,0B0\n1F0,1X0\n", "schedule.csv has '1X0', which is no action"),
        ("1F0,1B0\n0F0,0B0\n", r"schedule.csv: \[1, 0\]; plan.json: \[0, 1\]"),
    ],
)
def test_a_schedule_that_is_not_the_plans_is_refused(tmp_path, schedule, message):
    cut = small(microbatches=1)
    cut.schedule = schedule
    with pytest.raises(PlanError, match=message):
        on_ranks(cut, tmp_path, lambda pipeline, mine: None)
    with pytest.raises(PlanError, match=r"schedule\.csv is missing"):
        read_schedule(tmp_path / "schedule.csv")


def test_an_error_in_a_stage_comes_out_as_it_was_raised_and_ends_all(tmp_path, monkeypatch, caplog):
    calls = Counter()

    def forward(self, *received, **inputs):
        calls[self.last] += 1
        if self.last and calls[True] == 2:
            raise KeyError("lost")
        return plain(self, *received, **inputs)

    plain = Part.forward
    monkeypatch.setattr(Part, "forward", forward)
    began = time.monotonic()
    with pytest.raises(KeyError, match="lost") as caught:
        on_ranks(small(), tmp_path, lambda pipeline, mine: pipeline.step(mine, COUNT))
    assert caught.value.__notes__ == ["on rank 1 of the simulated mesh dp=1 x pp=2 x tp=1"]
    assert time.monotonic() - began < 5
    assert caplog.records == []


def test_a_rank_that_does_not_come_is_waited_for_no_longer_than_the_timeout(tmp_path, caplog):
    def run(pipeline, mine):
        if pipeline.mesh.rank:
            time.sleep(1)
        pipeline.step(mine, COUNT)

    with pytest.raises(CollectiveError, match=r"rank 0 waited 0\.5 s in send over pp of float32\[2, 6, 8\] for rank 1"):
        on_ranks(small(), tmp_path, run, timeout=0.5)
    assert caplog.records == []


def test_a_rank_that_ends_early_is_found_at_once(tmp_path):
    def run(pipeline, mine):
        if pipeline.mesh.rank == 0:
            pipeline.step(mine, COUNT)

    with pytest.raises(CollectiveError, match=r"rank 0 waits in send over pp .* for rank 1; rank 1 has ended"):
        on_ranks(small(), tmp_path, run)


def test_a_default_process_group_is_neither_needed_nor_left_behind(tmp_path):
    on_ranks(small(), tmp_path, lambda pipeline, mine: pipeline.step(mine, COUNT))
    assert not torch.distributed.is_initialized()


def test_1f1b_holds_no_more_than_it_has_in_flight(tmp_path):
    def run(pipeline, mine):
        def count(*_):
            alive = [stage.args_recv_info[m][0].buffer is not None for m in range(8)] if stage.received else [0]
            most.append(max(len(stage.fwd_cache), sum(alive)))

        (stage,) = pipeline._run((2, SEQ)).stages
        most = []
        stage.submod.register_forward_hook(count)
        pipeline.step(mine, COUNT)
        assert all(info.buffer is None for info in stage._every_receipt())
        return max(most)

    assert on_ranks(Cut("1f1b", 2, 1, 8, layers=4), tmp_path, run) == [1, 1]  # and the one that runs
    assert on_ranks(Cut("gpipe", 2, 1, 8, layers=4), tmp_path, run)[0] == 7


def test_a_model_in_stages_is_called_by_its_pipeline_alone(tmp_path):
    def run(pipeline, mine):
        pipeline.model(**mine[0])

    with pytest.raises(RuntimeError, match=r"run by graphpar\.runtime\.pipeline\.Pipeline"):
        on_ranks(small(), tmp_path, run)


def test_stages_of_a_rank_share_what_has_one_name(tmp_path):
    def run(pipeline, mine):
        model = pipeline.model
        if model.axis.rank:
            return None
        first, last = model.held.values()
        assert first.wte.weight is last.wte.weight
        assert first.scale is last.scale
        assert [name for name, _ in model.named_parameters()].count("wte.weight") == 1
        state = {name: torch.full_like(x, 2) for name, x in model.state_dict().items()}
        model.load_state_dict(state | {"h.1.ln.weight": torch.zeros(1)})
        assert isinstance(model, nn.Module)
        return all((p == 2).all() for p in model.parameters())

    assert on_ranks(small("zbv", 2), tmp_path, run) == [True, None]


def test_actions_have_ranges_for_a_profiler_and_for_nobody_else():
    with torch.profiler.profile() as seen, schedules.record_function("0F0"):
        pass
    assert "0F0" in [event.name for event in seen.events() or ()]
    assert isinstance(schedules.record_function("0F0"), nullcontext)
