"""Gradients are summed in buckets whose number and order depend on the model alone."""

import copy

import pytest
import torch
from torch import nn

from graphpar.runtime import Gradient, GradientSums, Parameters, buckets, simulate


def gradient(name, size, axes=("dp",), dtype="float32"):
    return Gradient(name, axes, dtype, size)


def names(result):
    return [[g.name for g in bucket] for bucket in result]


def test_buckets_run_backwards_and_close_before_they_grow_too_large():
    gradients = [gradient(n, s) for n, s in [("a", 4), ("b", 4), ("c", 3), ("d", 20), ("e", 5)]]
    assert names(buckets(gradients, 10)) == [["e"], ["d"], ["c", "b"], ["a"]]
    assert names(buckets(gradients, 100)) == [["e", "d", "c", "b", "a"]]


def test_a_bucket_has_one_set_of_axes_and_one_dtype_and_comes_where_its_last_gradient_does():
    gradients = [
        gradient("a", 4),
        gradient("b", 4, ("dp", "tp")),
        gradient("c", 4, ()),
        gradient("d", 4, dtype="bfloat16"),
        gradient("e", 4),
    ]
    assert names(buckets(gradients)) == [["d"], ["b"], ["e", "a"]]


def test_no_gradients_make_no_buckets():
    assert buckets([]) == []
    assert buckets([gradient("a", 4, ())]) == []


class Model(nn.Module):
    """Three uses of parameters; `unused` gets no gradient on rank 0 of dp."""

    def __init__(self, mesh, dtype=torch.float64):
        super().__init__()
        self.first = Parameters(weight=mesh.parameter(3, 3, grad_sum="dp", dtype=dtype))
        self.both = Parameters(weight=mesh.parameter(3, grad_sum="dp tp", dtype=dtype))
        self.own = Parameters(weight=mesh.parameter(3, dtype=dtype))
        self.unused = Parameters(weight=mesh.parameter(2, grad_sum="dp", dtype=dtype))
        for p in self.parameters():
            p.data.fill_(0.5)

    def forward(self, x, use):
        y = (x @ self.first.weight * self.both.weight * self.own.weight).sum()
        return y + self.unused.weight.sum() if use else y


def batch(rank, i, dtype=torch.float64):
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(10 * rank + i)).to(dtype)


def sums_of(sizes, bucket_bytes, *, overlap=True, dtype=torch.float64, log=False):
    def f(mesh):
        model = Model(mesh, dtype)
        sums = GradientSums(model, mesh, bucket_bytes)
        for _step in range(2):
            for p in model.parameters():
                p.grad = None
            model(batch(mesh.rank, 0, dtype), False).backward()
            loss = model(batch(mesh.rank, 1, dtype), mesh.coordinates["dp"] > 0)
            if overlap:
                with sums.last_microbatch():
                    loss.backward()
            else:
                loss.backward()
            sums.finish()
        return {name: p.grad for name, p in model.named_parameters()}, mesh.log

    return simulate(sizes, f, log=log)


def expected(sizes, dtype=torch.float64):
    """Each rank's own gradients, then plain sums."""

    def f(mesh):
        model = Model(mesh, dtype)
        for i in range(2):
            model(batch(mesh.rank, i, dtype), i == 1 and mesh.coordinates["dp"] > 0).backward()
        return {
            name: mesh[p.grad_sum].all_reduce(torch.zeros_like(p) if p.grad is None else p.grad)
            for name, p in model.named_parameters()
        }

    return simulate(sizes, f)


@pytest.mark.parametrize("sizes", [{"dp": 2, "tp": 1}, {"dp": 2, "tp": 2}, {"dp": 1, "tp": 2}], ids=str)
@pytest.mark.parametrize("bucket_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("overlap", [True, False])
def test_sums_are_exact_over_microbatches_steps_and_missing_gradients(sizes, bucket_bytes, overlap):
    for (got, _), want in zip(sums_of(sizes, bucket_bytes, overlap=overlap), expected(sizes), strict=True):
        for name in want:
            if got[name] is None:  # dp = 1: nothing to sum and nothing used it
                assert not want[name].any()
            else:
                torch.testing.assert_close(got[name], want[name], rtol=1e-14, atol=1e-14)


def test_the_collectives_are_one_per_bucket_in_the_same_order_with_or_without_overlap():
    logs = [log for overlap in (True, False) for _, log in sums_of({"dp": 2, "tp": 2}, 1, overlap=overlap, log=True)]
    assert all(log == logs[0] for log in logs)
    assert [(e.phase, e.kind, e.axis, e.shape) for e in logs[0]] == 2 * [
        ("step", "all_reduce", "dp", (2,)),
        ("step", "all_reduce", "dp tp", (3,)),
        ("step", "all_reduce", "dp", (9,)),
    ]


def test_narrow_gradients_are_summed_in_float32_and_stay_narrow():
    results = sums_of({"dp": 2, "tp": 2}, 1 << 20, dtype=torch.bfloat16, log=True)
    for got, log in results:
        assert {g.dtype for g in got.values()} == {torch.bfloat16}
        assert [e.bytes for e in log[:2]] == [3 * 4, 11 * 4]
    want = expected({"dp": 2, "tp": 2}, torch.bfloat16)
    torch.testing.assert_close(results[0][0]["first.weight"], want[0]["first.weight"], rtol=2e-2, atol=2e-2)


def test_ready_buckets_start_while_backward_still_runs():
    def f(mesh):
        model = Model(mesh)
        sums = GradientSums(model, mesh, 1)
        with sums.last_microbatch():
            model(batch(0, 0), True).backward()
            inside = len(mesh.log)
        sums.finish()
        return inside, len(mesh.log)

    # the last bucket is ready when backward is over
    assert simulate({"dp": 2, "tp": 1}, f, log=True) == [(2, 3), (2, 3)]


def test_a_second_backward_in_the_last_microbatch_is_an_error():
    def f(mesh):
        model = Model(mesh)
        sums = GradientSums(model, mesh, 1)
        with sums.last_microbatch():
            for _ in range(2):
                model(batch(0, 0), True).backward()

    with pytest.raises(RuntimeError, match=r"gradient of \w+\.weight came after its sum had started"):
        simulate({"dp": 2, "tp": 1}, f)


def test_a_parameter_that_does_not_say_how_it_lies_is_an_error():
    def f(mesh):
        model = nn.Module()
        model.a = copy.deepcopy(mesh.parameter(2, grad_sum="dp"))
        GradientSums(model, mesh)

    with pytest.raises(ValueError, match=r"a was not made by mesh\.parameter"):
        simulate({"dp": 2}, f)


def test_frozen_parameters_take_no_part():
    def f(mesh):
        model = nn.Module()
        model.a = mesh.parameter(2, grad_sum="dp", trainable=False)
        GradientSums(model, mesh).finish()
        return mesh.log

    assert simulate({"dp": 2}, f, log=True) == [[], []]
