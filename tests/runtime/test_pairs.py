"""Each collective and its backward are adjoint: <f(x), y> = <x, f'(y)>.

A value x in a state and a gradient y in the matching state pair to one number, the same on all ranks:
I and R have equal values, I pairs with I, and R with a summand, so the products are summed; likewise S with S.
"""

import pytest
import torch

from graphpar.runtime import (
    all_gather,
    all_gather_same,
    all_reduce,
    all_reduce_count,
    all_reduce_max,
    all_to_all,
    first_only,
    first_only_both,
    grad_all_reduce,
    pad_partial,
    reduce_scatter,
    simulate,
    slice_,
    slice_partial,
)

WHOLE = (4, 12, 3)
GRADIENT = {"I": "I", "R": "P", "S": "S", "P": "R"}
MESHES = [({"tp": 2}, ("tp",)), ({"dp": 2, "tp": 2}, ("dp", "tp")), ({"dp": 2, "tp": 2}, ("tp",))]


def shape(state, size, dim=1):
    return [s // size if state == "S" and i == dim else s for i, s in enumerate(WHOLE)]


def values(state, axis, seed, dim=1):
    """Random values in a state: equal on the ranks of the axis for I and R, independent for S and P."""
    place = 0 if state in "IR" else axis.rank + 1
    return torch.randn(
        shape(state, axis.size, dim), generator=torch.Generator().manual_seed(seed * 100 + place), dtype=torch.float64
    )


def pairing(state, x, y, axis):
    product = (x * y).sum()
    return product if state == "I" else axis.all_reduce(product)


PAIRS = [
    ("all_reduce", "P", "I", lambda x, axis, blocks: all_reduce(x, axis)),
    ("grad_all_reduce", "I", "R", lambda x, axis, blocks: grad_all_reduce(x, axis)),
    ("all_gather", "S", "R", lambda x, axis, blocks: all_gather(x, axis, 1, blocks)),
    ("reduce_scatter", "P", "S", lambda x, axis, blocks: reduce_scatter(x, axis, 1, blocks)),
    ("all_gather_same", "S", "I", lambda x, axis, blocks: all_gather_same(x, axis, 1, blocks)),
    ("slice_", "I", "S", lambda x, axis, blocks: slice_(x, axis, 1, blocks)),
    ("slice_partial", "R", "S", lambda x, axis, blocks: slice_partial(x, axis, 1, blocks)),
    ("pad_partial", "S", "P", lambda x, axis, blocks: pad_partial(x, axis, 1, blocks)),
    ("first_only", "I", "P", lambda x, axis, blocks: first_only(x, axis)),
    ("first_only_both", "R", "P", lambda x, axis, blocks: first_only_both(x, axis)),
]


@pytest.mark.parametrize(("sizes", "names"), MESHES)
@pytest.mark.parametrize("blocks", [1, 3, "segments"])
@pytest.mark.parametrize(("name", "source", "target", "f"), PAIRS)
def test_backward_is_the_adjoint_of_forward(sizes, names, blocks, name, source, target, f):
    def check(mesh):
        axis = mesh[names]
        kind = {"segments": tuple(s // axis.size for s in (8, 4))}.get(blocks, blocks)
        x = values(source, axis, 1).requires_grad_()
        out = f(x, axis, kind)
        y = values(GRADIENT[target], axis, 2)
        assert out.shape == y.shape
        assert out.is_contiguous()
        out.backward(y)
        left, right = pairing(target, out.detach(), y, axis), pairing(source, x.detach(), x.grad, axis)
        torch.testing.assert_close(left, right, rtol=1e-13, atol=1e-13)
        if GRADIENT[source] in "IR":  # the gradient of an I or P operand is one value for all
            assert all(torch.equal(part, x.grad) for part in axis.all_gather(x.grad.unsqueeze(0), 0))

    if blocks == 3 and 12 % (3 * len(names) * 2):
        pytest.skip("12 does not divide")
    simulate(sizes, check)


@pytest.mark.parametrize(("sizes", "names"), MESHES)
def test_all_to_all_is_its_own_adjoint(sizes, names):
    def check(mesh):
        axis = mesh[names]
        x = values("S", axis, 1, dim=0).requires_grad_()
        y = values("S", axis, 2, dim=1)
        out = all_to_all(x, axis, 1, 0)
        assert out.shape == y.shape
        out.backward(y)
        torch.testing.assert_close(pairing("S", out.detach(), y, axis), pairing("S", x.detach(), x.grad, axis))
        assert torch.equal(all_to_all(out, axis, 0, 1), x)

    simulate(sizes, check)


def test_all_to_all_moves_the_cut_with_blocks_on_both_sides():
    whole = torch.arange(48).view(12, 4)

    def check(mesh):
        axis = mesh["tp"]
        x = slice_(whole, axis, 0, blocks=3)
        out = all_to_all(x, axis, split_dim=1, concat_dim=0, split_blocks=2, concat_blocks=3)
        assert torch.equal(out, slice_(whole, axis, 1, blocks=2))

    simulate({"tp": 2}, check)


def test_forward_values_are_those_of_the_whole():
    whole = torch.randn(WHOLE, dtype=torch.float64)

    def check(mesh):
        axis = mesh["tp"]
        part = slice_(whole, axis, 1, blocks=3)
        assert torch.equal(all_gather(part, axis, 1, blocks=3), whole)
        assert torch.equal(all_gather_same(part, axis, 1, blocks=3), whole)
        assert torch.equal(all_reduce(pad_partial(part, axis, 1, blocks=3), axis), whole)
        assert torch.equal(reduce_scatter(first_only(whole, axis), axis, 1, blocks=3), part)
        assert torch.equal(all_reduce_max(whole + axis.rank, axis), whole + 1)
        assert all_reduce_count(torch.tensor(3 + axis.rank), axis) == 7

    simulate({"tp": 2}, check)


def test_an_axis_of_size_one_hands_the_tensor_back():
    def check(mesh):
        axis = mesh["tp"]
        x = torch.randn(4, 6, requires_grad=True)
        for f in (all_reduce, grad_all_reduce, first_only, first_only_both):
            assert f(x, axis) is x
        for f in (all_gather, reduce_scatter, all_gather_same, slice_, slice_partial, pad_partial):
            assert f(x, axis, 1) is x
        assert all_to_all(x, axis, 0, 1) is x
        assert mesh["dp", "tp"] is mesh["dp"]
        assert mesh.log == []

    simulate({"dp": 2, "tp": 1}, check, log=True)


def test_operands_are_left_alone_and_may_be_strided():
    def check(mesh):
        axis = mesh["tp"]
        x = torch.randn(6, 4).t()
        before = x.clone()
        for out in (all_reduce(x, axis), all_gather(x, axis, 1), reduce_scatter(x, axis, 0), slice_(x, axis, 1)):
            assert out.is_contiguous()
            out.zero_()
            assert torch.equal(x, before)

    simulate({"tp": 2}, check)


def test_an_uneven_dimension_is_an_error():
    with pytest.raises(ValueError, match=r"dimension 0 of \[3, 2\] cannot be cut evenly into 2 ranks"):
        simulate({"tp": 2}, lambda mesh: reduce_scatter(torch.ones(3, 2), mesh["tp"], 0))


def test_a_collective_that_would_lose_the_gradient_is_an_error():
    with pytest.raises(RuntimeError, match="all_reduce over tp would lose the gradient"):
        simulate({"tp": 2}, lambda mesh: mesh["tp"].all_reduce(torch.ones(2, requires_grad=True)))


def test_empty_tensors_flow_through():
    def check(mesh):
        axis = mesh["tp"]
        x = torch.empty(0, 4, requires_grad=True)
        y = reduce_scatter(all_gather(grad_all_reduce(x, axis), axis, 0), axis, 0)
        y.sum().backward()
        assert x.grad.shape == (0, 4)

    simulate({"tp": 2}, check)
