"""Every schedule trains as the unsplit model does: loss, gradients, norm and three steps of AdamW."""

import copy
from functools import cache

import pytest
import torch
from pipelined_gpt import SEQ, Block, Cut, Part, Source, batches, fill, part
from torch.utils.checkpoint import checkpoint

from graphpar.runtime import GradientSums, clip, simulate
from graphpar.runtime.pipeline import Pipeline

TOLERANCE = {"rtol": 1e-9, "atol": 1e-9}
STEPS = 3


@pytest.fixture(autouse=True)
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@cache
def unsplit(number, rows, layers, skip=False):
    """The start, losses, norms, gradients of the first step, and final parameters."""
    microbatches = batches(number, rows)
    torch.manual_seed(0)
    source = Source(layers, skip=skip)
    start = copy.deepcopy(source)
    whole = {key: torch.cat([batch[key] for batch in microbatches]) for key in ("idx", "targets")}
    optimizer = torch.optim.AdamW(source.parameters(), lr=1e-2)
    losses, norms, first = [], [], {}
    for _step in range(STEPS):
        loss = source(**whole)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(source.parameters(), 1.0).item())
        losses.append(loss.item())
        first = first or {name: p.grad.clone() for name, p in source.named_parameters()}
        optimizer.step()
        optimizer.zero_grad()
    return start, losses, norms, first, dict(source.named_parameters())


def train(cut, folder, start, rows):
    plan = cut.plan(folder)
    tensors = [*start.named_parameters(), *start.named_buffers()]

    def rank(mesh):
        model = cut.model(mesh)
        fill(model, tensors)
        pipeline = Pipeline(model, plan, mesh, cut.schedule)
        sums = GradientSums(model, mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        mine = batches(cut.microbatches, rows, cut.sizes["dp"], mesh.coordinates["dp"])
        count = torch.tensor(rows * SEQ * cut.microbatches)
        losses, norms, first = [], [], {}
        for step in range(STEPS):
            loss = pipeline.step(mine, count, seed=1, step=step)
            sums.finish()
            norms.append(clip(model, mesh, 1.0).item())
            losses.append(mesh["dp"].all_reduce(loss).item())
            first = first or {name: p.grad.clone() for name, p in model.named_parameters()}
            optimizer.step()
            optimizer.zero_grad()
        return losses, norms, first, dict(model.named_parameters()), mesh

    return simulate(cut.sizes, rank, log=True)


CASES = [
    (name, ranks, virtual, microbatches)
    for ranks in (2, 4)
    for name, virtual, most in [("gpipe", 1, 1), ("1f1b", 1, 1), ("interleaved", 2, ranks), ("zero_bubble", 1, ranks),
                                ("zero_bubble", 2, ranks), ("zbv", 2, 1), ("dualpipev", 2, 2 * ranks)]
    for microbatches in (1, 2, 4, 8)
    if microbatches % most == 0
]  # fmt: skip


def compared(folder, name, ranks, virtual, microbatches, **how):
    """Train the stages and the whole model, and compare; the meshes of the ranks."""
    cut = Cut(name, ranks, virtual, microbatches, layers=max(4, ranks * virtual), **how)
    rows = 2 * cut.sizes["dp"]
    return train_and_compare(cut, folder, unsplit(microbatches, rows, cut.count, cut.extra == "skip"))


def train_and_compare(cut, folder, whole):
    start, losses, norms, first, final = whole
    found = train(cut, folder, start, 2 * cut.sizes["dp"])
    held = set()
    for rank_losses, rank_norms, rank_first, rank_final, mesh in found:
        assert rank_losses == pytest.approx(losses, rel=1e-9)
        assert rank_losses == found[0][0]
        assert rank_norms == found[0][1]
        assert rank_norms == pytest.approx(norms, rel=1e-9)
        for name, grad in rank_first.items():
            torch.testing.assert_close(grad, part(first[name], grad, mesh), **TOLERANCE)
        for name, parameter in rank_final.items():
            torch.testing.assert_close(parameter, part(final[name], parameter, mesh), **TOLERANCE)
        held |= rank_final.keys()
    assert held == final.keys()
    for *_, one, _ in found:  # what is not cut over tp is the same on all ranks that have it
        for *_, other, _ in found:
            alike = [name for name in one.keys() & other.keys() if ".up." not in name and "down.weight" not in name]
            assert all(torch.equal(one[name], other[name]) for name in alike)
    return [mesh for *_, mesh in found]


@pytest.mark.parametrize(("name", "ranks", "virtual", "microbatches"), CASES)
def test_a_pipeline_trains_as_the_unsplit_model(tmp_path, name, ranks, virtual, microbatches):
    compared(tmp_path, name, ranks, virtual, microbatches)


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("zbv", 2)])
def test_a_pipeline_beside_data_parallelism_trains_as_the_unsplit_model(tmp_path, name, virtual):
    compared(tmp_path, name, 2, virtual, 4, dp=2)


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("zero_bubble", 1), ("dualpipev", 2)])
def test_stages_that_are_cut_over_another_axis_train_as_the_unsplit_model(tmp_path, name, virtual):
    compared(tmp_path, name, 2, virtual, 4, tp=2)


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("zero_bubble", 1), ("zbv", 2), ("dualpipev", 2)])
def test_integers_and_masks_cross_without_a_gradient(tmp_path, name, virtual):
    compared(tmp_path, name, 2, virtual, 4, extra="mask")


@pytest.mark.parametrize(("name", "virtual"), [("1f1b", 1), ("zero_bubble", 1), ("zbv", 2), ("dualpipev", 2)])
def test_a_value_may_pass_through_stages_that_make_no_use_of_it(tmp_path, name, virtual):
    compared(tmp_path, name, 2 if virtual == 2 else 4, virtual, 4, extra="skip")


@pytest.mark.parametrize(("name", "ranks", "virtual"), [("1f1b", 2, 1), ("zero_bubble", 2, 1), ("interleaved", 1, 2)])
def test_a_value_that_nobody_uses_in_the_end_has_a_gradient_of_zeros(tmp_path, name, ranks, virtual):
    class Unused(Cut):
        def model(self, mesh):
            model = super().model(mesh)
            for stage in model.held.values():
                stage.uses = False
            return model

    cut = Unused(name, ranks, virtual, 4, layers=4, extra="skip")
    train_and_compare(cut, tmp_path, unsplit(4, 2, 4))


@pytest.mark.parametrize("name", ["1f1b", "zero_bubble", "zbv"])
def test_stages_may_send_views_that_are_not_contiguous(tmp_path, monkeypatch, name):
    def forward(self, *received, **inputs):
        y = plain(self, *received, **inputs)
        return y if self.last else y.transpose(1, 2).contiguous().transpose(1, 2)

    plain = Part.forward
    monkeypatch.setattr(Part, "forward", forward)
    compared(tmp_path, name, 2, 2 if name == "zbv" else 1, 4)


@pytest.mark.parametrize(("name", "virtual", "tp"), [("1f1b", 1, 1), ("zero_bubble", 1, 2), ("dualpipev", 2, 1)])
def test_blocks_may_be_computed_again_in_each_half_of_a_backward(tmp_path, monkeypatch, name, virtual, tp):
    def forward(self, x):
        return checkpoint(plain, self, x, use_reentrant=False, context_fn=self.replay, preserve_rng_state=False)

    plain = Block.forward
    monkeypatch.setattr(Block, "forward", forward)
    compared(tmp_path, name, 2, virtual, 4, tp=tp)


def test_stages_of_one_rank_need_no_messages(tmp_path):
    (mesh,) = compared(tmp_path, "interleaved", 1, 2, 2)
    assert mesh.log == []
