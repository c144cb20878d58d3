"""Layer norm and softmax over a split dimension equal those over the whole."""

import pytest
import torch
import torch.nn.functional as F

from graphpar.runtime import simulate, split_layer_norm, split_softmax


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(ranks, affine):
    x = (1000 + draw(2, 3, 8)).requires_grad_()  # a mean that would cancel in E[x^2] - E[x]^2
    weight = draw(8, seed=1).requires_grad_() if affine else None
    bias = draw(8, seed=2).requires_grad_() if affine else None
    upstream = draw(2, 3, 8, seed=3)
    expected = F.layer_norm(x, (8,), weight, bias, 1e-3)
    expected.backward(upstream)

    def check(mesh):
        axis = mesh["tp"]
        own = [
            None if t is None else t.detach().chunk(ranks, -1)[axis.rank].clone().requires_grad_()
            for t in (x, weight, bias)
        ]
        out = split_layer_norm(*own, axis, size=8, eps=1e-3)
        out.backward(upstream.chunk(ranks, -1)[axis.rank])
        torch.testing.assert_close(out, expected.chunk(ranks, -1)[axis.rank], rtol=1e-11, atol=1e-11)
        for part, whole in zip(own, (x, weight, bias), strict=True):
            if whole is not None:
                torch.testing.assert_close(part.grad, whole.grad.chunk(ranks, -1)[axis.rank], rtol=1e-10, atol=1e-10)

    simulate({"tp": ranks}, check)


def test_layer_norm_refuses_parts_of_another_size():
    with pytest.raises(ValueError, match="2 parts of 3 do not make a normalised dimension of 7"):
        simulate({"tp": 2}, lambda mesh: split_layer_norm(torch.ones(2, 3), None, None, mesh["tp"], 7))


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("dim", [0, -1])
def test_softmax(ranks, dim):
    x = draw(8, 3, 8)
    x[2, 1, 4:] = x[3:, 2, 5] = -torch.inf
    x.requires_grad_()
    upstream = draw(8, 3, 8, seed=3)
    expected = x.softmax(dim)
    expected.backward(upstream)

    def check(mesh):
        axis = mesh["tp"]
        own = x.detach().chunk(ranks, dim)[axis.rank].clone().requires_grad_()
        out = split_softmax(own, dim, axis)
        out.backward(upstream.chunk(ranks, dim)[axis.rank])
        torch.testing.assert_close(out, expected.chunk(ranks, dim)[axis.rank], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(own.grad, x.grad.chunk(ranks, dim)[axis.rank], rtol=1e-13, atol=1e-13)

    simulate({"tp": ranks}, check)


def test_narrow_dtypes_are_computed_in_float32_and_come_back_narrow():
    def check(mesh):
        axis = mesh["tp"]
        x = draw(4, 8).bfloat16().requires_grad_()
        own = x.detach().chunk(2, 1)[axis.rank].clone().requires_grad_()
        pairs = [
            (split_layer_norm(own, None, None, axis, 8), F.layer_norm(x, (8,))),
            (split_softmax(own, 1, axis), x.softmax(1)),
        ]
        for out, expected in pairs:
            assert out.dtype == torch.bfloat16
            torch.testing.assert_close(out, expected.chunk(2, 1)[axis.rank], rtol=2e-2, atol=1e-2)
            out.sum().backward()
        assert own.grad.dtype == torch.bfloat16

    simulate({"tp": 2}, check)
