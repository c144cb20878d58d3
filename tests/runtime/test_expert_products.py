"""Each row meets its own expert's matrix and bias, by a loop and by the grouped kernel."""

import pytest
import torch

from graphpar.runtime import expert_bias, expert_linear, expert_products, route

SIZES = [[3, 0, 2, 4], [0, 9, 0, 0], [0, 0, 0, 0]]


def routing_of(sizes):
    return route(torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)).unsqueeze(1), experts=len(sizes))


def some(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def by_expert(rows, w, b, sizes):
    """The same with nothing but torch: slices, products, and a cat."""
    return torch.cat([x @ m.t() + c for x, m, c in zip(rows.split(sizes), w, b, strict=True)])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_values_and_gradients_are_those_of_slices(sizes, transposed):
    rows, b = some(sum(sizes), 3), some(4, 5)
    w = some(4, 3, 5) if transposed else some(4, 5, 3)
    routing = routing_of(sizes)
    ours = expert_bias(expert_linear(rows, w, routing, transposed=transposed), b, routing)
    theirs = by_expert(rows, w.transpose(1, 2) if transposed else w, b, sizes)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13)
    target = torch.randn_like(theirs)
    for mine, expected in zip(
        torch.autograd.grad(ours, [rows, w, b], target), torch.autograd.grad(theirs, [rows, w, b], target), strict=True
    ):
        torch.testing.assert_close(mine, expected, rtol=1e-13, atol=1e-13)
        assert mine.is_contiguous()


def test_gradients_are_those_of_the_values():
    routing = routing_of(SIZES[0])
    w, rows, b = some(4, 2, 3), some(9, 3), some(4, 3)
    assert torch.autograd.gradcheck(lambda rows, w: expert_linear(rows, w, routing), (rows, w))
    assert torch.autograd.gradcheck(lambda rows, b: expert_bias(rows, b, routing), (rows, b))


def test_without_rows_every_gradient_is_there_and_zero():
    routing = routing_of(SIZES[2])
    rows, w, b = some(0, 3), some(4, 5, 3), some(4, 5)
    expert_bias(expert_linear(rows, w, routing), b, routing).sum().backward()
    assert rows.grad.shape == (0, 3)
    assert torch.equal(w.grad, torch.zeros_like(w))
    assert torch.equal(b.grad, torch.zeros_like(b))


@pytest.mark.parametrize("frozen", [0, 1])
def test_what_needs_no_gradient_gets_none(frozen):
    leaves = [some(9, 3), some(4, 5, 3)]
    leaves[frozen].requires_grad_(False)
    expert_linear(*leaves, routing_of(SIZES[0])).sum().backward()
    assert [leaf.grad is None for leaf in leaves] == [i == frozen for i in range(2)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_narrow_numbers_stay_narrow(dtype):
    routing = routing_of(SIZES[0])
    rows, w, b = some(9, 8, dtype=dtype), some(4, 16, 8, dtype=dtype), some(4, 16, dtype=dtype)
    y = expert_bias(expert_linear(rows, w, routing), b, routing)
    y.sum().backward()
    assert {y.dtype, rows.grad.dtype, w.grad.dtype, b.grad.dtype} == {dtype}
    wide = by_expert(rows.double(), w.double(), b.double(), SIZES[0])
    torch.testing.assert_close(y.double(), wide, rtol=2e-2, atol=5e-2)


def test_the_product_has_the_dtype_of_the_matrices():
    rows, w = some(9, 8, dtype=torch.float32), some(4, 16, 8, dtype=torch.bfloat16)
    y = expert_linear(rows, w, routing_of(SIZES[0]))
    y.sum().backward()
    assert (y.dtype, rows.grad.dtype, w.grad.dtype) == (torch.bfloat16, torch.float32, torch.bfloat16)


def test_autocast_narrows_the_product_and_not_the_parameters():
    routing = routing_of(SIZES[0])
    rows, w, b = (some(*shape, dtype=torch.float32) for shape in ((9, 8), (4, 16, 8), (4, 16)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = expert_bias(expert_linear(rows, w, routing), b, routing)
        assert expert_linear(rows.double(), w.double(), routing).dtype == torch.float64
    y.sum().backward()
    assert y.dtype == torch.bfloat16
    assert {rows.grad.dtype, w.grad.dtype, b.grad.dtype} == {torch.float32}


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("sizes", SIZES[:2])
def test_the_grouped_kernel_does_what_the_loop_does(sizes, transposed, monkeypatch):
    routing = routing_of(sizes)
    rows = some(9, 8, dtype=torch.bfloat16)
    w = some(4, 8, 16, dtype=torch.bfloat16) if transposed else some(4, 16, 8, dtype=torch.bfloat16)
    results = []
    for grouped in (False, True):
        monkeypatch.setattr(expert_products, "_has_grouped", lambda rows, w, grouped=grouped: grouped)
        y = expert_linear(rows, w, routing, transposed=transposed)
        assert ("Grouped" in y.grad_fn.name()) == grouped
        results.append([y, *torch.autograd.grad(y, [rows, w], torch.linspace(-1, 1, 16).expand(9, 16).bfloat16())])
    for loop, kernel in zip(*results, strict=True):
        torch.testing.assert_close(loop, kernel, rtol=2e-2, atol=2e-2)
        assert loop.stride() == kernel.stride()


@pytest.mark.parametrize(
    ("dtype", "width", "grouped"),
    [(torch.float32, 8, True), (torch.bfloat16, 8, True), (torch.float32, 6, False), (torch.float64, 8, False)],
)
def test_products_are_grouped_where_torch_can(dtype, width, grouped):
    rows, w = some(9, 8, dtype=dtype), some(4, width, 8, dtype=dtype)
    assert ("Grouped" in expert_linear(rows, w, routing_of(SIZES[0])).grad_fn.name()) == grouped


def test_a_second_derivative_is_an_error():
    rows, w = some(9, 3), some(4, 5, 3)
    (grad,) = torch.autograd.grad(expert_linear(rows, w, routing_of(SIZES[0])).square().sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()
