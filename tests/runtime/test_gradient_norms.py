"""The norm counts each element of the source's parameters once; decisions are the same on all ranks."""

import pytest
import torch
from torch import nn

from graphpar.runtime import all_finite, clip, gradient_norm, simulate

WHOLE = {
    "replicated": torch.randn(5, generator=torch.Generator().manual_seed(0), dtype=torch.float64),
    "split": torch.randn(8, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64),
    "split twice": torch.randn(8, generator=torch.Generator().manual_seed(2), dtype=torch.float64),
}
SHARDED = {"replicated": "", "split": "tp", "split twice": "dp tp"}


def model_on(mesh, dtype=torch.float64):
    model = nn.Module()
    for name, sharded in SHARDED.items():
        axis = mesh[tuple(sharded.split())]
        part = WHOLE[name].to(dtype).chunk(axis.size)[axis.rank]
        parameter = mesh.parameter(*part.shape, sharded=sharded, dtype=dtype)
        parameter.grad = part.clone()
        model.register_parameter(name.replace(" ", "_"), parameter)
    model.register_parameter("unused", mesh.parameter(2))
    return model


EXPECTED = torch.stack([g.square().sum() for g in WHOLE.values()]).sum().sqrt()
SIZES = [{"dp": 1, "tp": 1}, {"dp": 2, "tp": 1}, {"dp": 1, "tp": 2}, {"dp": 2, "tp": 2}]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_norm_does_not_depend_on_the_mesh(sizes):
    norms = simulate(sizes, lambda mesh: gradient_norm(model_on(mesh), mesh))
    torch.testing.assert_close(norms[0], EXPECTED, rtol=1e-14, atol=0)
    assert all(torch.equal(norm, norms[0]) for norm in norms)


@pytest.mark.parametrize("max_norm", [0.5, 1e6])
def test_clip_scales_as_torch_does_on_one_device(max_norm):
    whole = [nn.Parameter(g.clone()) for g in WHOLE.values()]
    for p in whole:
        p.grad = p.detach().clone()
    before = nn.utils.clip_grad_norm_(whole, max_norm)

    def f(mesh):
        model = model_on(mesh)
        torch.testing.assert_close(clip(model, mesh, max_norm), before)
        axis = mesh["tp"]
        torch.testing.assert_close(model.split.grad, whole[1].grad.chunk(2)[axis.rank])
        torch.testing.assert_close(model.replicated.grad, whole[0].grad)

    simulate({"dp": 2, "tp": 2}, f)


def test_narrow_gradients_have_a_float32_norm():
    (norm, *_) = simulate({"dp": 1, "tp": 2}, lambda mesh: gradient_norm(model_on(mesh, torch.bfloat16), mesh))
    assert norm.dtype == torch.float32
    torch.testing.assert_close(norm.double(), EXPECTED, rtol=1e-2, atol=0)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_one_bad_element_on_one_rank_is_seen_by_all(bad):
    def f(mesh):
        model = model_on(mesh)
        assert all_finite(model, mesh)
        if mesh.rank == 3:
            model.split.grad[0, 0] = bad
        return all_finite(model, mesh), gradient_norm(model, mesh).isfinite().item()

    assert simulate({"dp": 2, "tp": 2}, f) == [(False, False)] * 4


def test_it_costs_one_collective_whatever_a_rank_holds():
    def f(mesh):
        gradient_norm(model_on(mesh) if mesh.rank else nn.Module(), mesh)
        return [(e.phase, e.kind, e.axis, e.shape) for e in mesh.log]

    assert simulate({"dp": 2, "tp": 2}, f, log=True) == [[("step", "all_reduce", "dp tp", ())]] * 4
