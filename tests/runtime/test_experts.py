"""Experts on any number of ranks compute what a loop over them does, and communicate by the plan alone."""

from itertools import pairwise

import pytest
import torch
from dense_experts import by_experts, by_tokens, dense, layer

from graphpar.runtime import (
    combine,
    dispatch,
    exchange_counts,
    expert_linear,
    own_counts,
    route,
    simulate,
    to_experts,
    to_tokens,
)

EXPERTS = 12  # of 1, 2, 3 and 4 ranks
TOKENS = {1: [7], 2: [6, 3], 3: [4, 0, 5], 4: [3, 5, 0, 2]}


def distinct(tokens, topk, experts=EXPERTS):
    """Experts of each token, all different, as a router chooses them."""
    return torch.rand(tokens, experts, generator=torch.Generator().manual_seed(5)).topk(topk).indices


def same(tokens, topk):
    """Every token chooses the same experts: most have no row, and so have most ranks."""
    return torch.arange(topk).expand(tokens, topk)


def close(ours, expected):
    for i, (a, b) in enumerate(zip(ours, expected, strict=True)):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, msg=lambda text, i=i: f"result {i}: {text}")


def joined(parts):
    return [torch.cat(part) for part in zip(*parts, strict=True)]


@pytest.mark.parametrize("choose", [distinct, same])
@pytest.mark.parametrize("topk", [1, 2, 3])
@pytest.mark.parametrize("ranks", TOKENS)
def test_tokens_on_any_ranks_meet_their_experts(ranks, topk, choose):
    whole = layer(choose(sum(TOKENS[ranks]), topk), EXPERTS)
    close(joined(simulate({"ep": ranks}, lambda mesh: by_tokens(whole, mesh["ep"], TOKENS[ranks]))), dense(whole))


@pytest.mark.parametrize("choose", [distinct, same])
@pytest.mark.parametrize("topk", [1, 2])
@pytest.mark.parametrize("ranks", TOKENS)
def test_ranks_that_hold_all_tokens_compute_their_own_experts(ranks, topk, choose):
    whole = layer(choose(9, topk), EXPERTS)
    parts = simulate({"ep": ranks}, lambda mesh: by_experts(whole, mesh["ep"]))
    y, x, weights, *experts = dense(whole)
    for mine in parts:
        close(mine[:3], [y, x, weights])
    close(joined([mine[3:] for mine in parts]), experts)


@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_a_slot_that_is_not_kept_is_as_if_its_expert_gave_zero(share):
    mask = torch.rand(9, 2, generator=torch.Generator().manual_seed(2)) < share
    whole = layer(distinct(9, 2), EXPERTS, mask)
    y, x, weights, *experts = dense(whole)
    tokens = simulate({"ep": 3}, lambda mesh: by_tokens(whole, mesh["ep"], [4, 0, 5]))
    close(joined(tokens), [y, x, weights, *experts])
    own = simulate({"ep": 3}, lambda mesh: by_experts(whole, mesh["ep"]))
    for mine in own:
        close(mine[:3], [y, x, weights])
    close(joined([mine[3:] for mine in own]), experts)


def test_one_expert_for_each_rank_needs_no_order_of_its_own():
    whole = layer(distinct(9, 2, experts=3), 3)
    close(joined(simulate({"ep": 3}, lambda mesh: by_tokens(whole, mesh["ep"], [4, 0, 5]))), dense(whole))


def executed(chosen, tokens):
    def run(mesh):
        by_tokens(layer(chosen, EXPERTS), mesh["ep"], tokens)
        return mesh.log

    return simulate({"ep": len(tokens)}, run, log=True)


def test_what_is_communicated_depends_on_no_data():
    forward, backward = ("forward", "all_to_all"), ("backward", "all_to_all")
    for chosen, tokens in [
        (distinct(9, 2), [4, 5]),
        (same(9, 2), [0, 9]),
        (same(9, 1), [9, 0]),
        (torch.full((6, 2), EXPERTS - 1), [1, 5]),
        (torch.zeros(0, 2, dtype=torch.int64), [0, 0]),
    ]:
        for log in executed(chosen, tokens):
            assert [(one.phase, one.kind) for one in log] == [forward] * 3 + [backward] * 2
            assert log[0].shape == (EXPERTS,)
            assert log[0].bytes == 8 * EXPERTS


def test_rows_are_ordered_by_expert_then_token_then_slot():
    chosen = torch.tensor([[2, 0], [2, 2], [0, 1]])
    routing = route(chosen, experts=4)
    assert routing.order.tolist() == [1, 4, 5, 0, 2, 3]
    assert routing.token.tolist() == [0, 2, 2, 0, 1, 1]
    assert routing.counts.tolist() == [2, 1, 3, 0]
    assert torch.equal(routing.order[routing.place], torch.arange(6))
    x = torch.tensor([[0.0], [1.0], [2.0]])
    assert dispatch(x, routing).flatten().tolist() == [0, 2, 2, 0, 1, 1]


def test_rows_that_came_are_ordered_expert_by_expert():
    """The published case: 2 own experts, and counts [2, 3] from rank 0 and [1, 4] from rank 1."""

    def run(mesh):
        counts = [[2, 3, 1, 0], [1, 4, 0, 2]][mesh.rank]
        chosen = torch.arange(4).repeat_interleave(torch.tensor(counts)).unsqueeze(1)
        routing = route(chosen, experts=4)
        routed = exchange_counts(routing, mesh["ep"])
        start = [0, 5][mesh.rank]  # counted as rank 0 gets them
        rows = to_experts(dispatch(torch.arange(start, start + len(chosen)).unsqueeze(1), routing), routed, mesh["ep"])
        back = to_tokens(rows, routed, mesh["ep"])
        assert back.flatten().tolist() == list(range(start, start + len(chosen)))
        return rows.flatten().tolist(), routed.counts.tolist(), routed.exchange

    (rows, counts, exchange), (_, others, _) = simulate({"ep": 2}, run)
    assert rows == [0, 1, 5, 2, 3, 4, 6, 7, 8, 9]
    assert counts == [3, 7]
    assert others == [1, 2]
    assert exchange.order.tolist() == rows
    assert exchange.received.tolist() == [[2, 3], [1, 4]]
    assert (exchange.send, exchange.receive) == ([5, 1], [5, 5])


def test_three_ranks_of_which_one_receives_nothing():
    def run(mesh):
        routing = route(torch.tensor([[5], [0], [1], [5]]), experts=6)
        routed = exchange_counts(routing, mesh["ep"])
        rows = to_experts(dispatch(torch.arange(4).unsqueeze(1) + 10 * mesh.rank, routing), routed, mesh["ep"])
        return rows.flatten().tolist(), routed.sizes

    assert simulate({"ep": 3}, run) == [
        ([1, 11, 21, 2, 12, 22], [3, 3]),
        ([], [0, 0]),
        ([0, 3, 10, 13, 20, 23], [0, 6]),
    ]


def test_an_axis_of_one_hands_back_what_it_gets():
    def run(mesh):
        axis, x = mesh["ep"], torch.ones(3, 2)
        routing = route(torch.tensor([[0], [1], [0]]), experts=2)
        assert exchange_counts(routing, axis) is routing
        assert own_counts(routing, axis) is routing
        assert to_experts(x, routing, axis) is x
        assert to_tokens(x, routing, axis) is x
        assert mesh.log == []

    simulate({"ep": 1}, run, log=True)


def test_tokens_keep_their_dimensions():
    chosen = torch.tensor([[[0, 1], [1, 2]], [[2, 0], [0, 1]], [[1, 0], [2, 1]]])  # [batch, seq, topk]
    x = torch.randn(3, 2, 4)
    routing = route(chosen, experts=3)
    weights = torch.rand(3, 2, 2)
    y = combine(dispatch(x, routing), weights, routing)
    torch.testing.assert_close(y, x * weights.sum(-1, keepdim=True))
    torch.testing.assert_close(combine(dispatch(x, routing), None, routing), 2 * x)


@pytest.mark.parametrize("mask", [None, torch.tensor([[True, False], [False, True], [True, True]])])
def test_dispatch_and_combine_have_the_gradients_of_their_values(mask):
    routing = route(torch.tensor([[0, 2], [2, 1], [2, 0]]), experts=3, kept=mask)
    x, weights = (torch.randn(3, n, dtype=torch.float64, requires_grad=True) for n in (4, 2))
    rows = torch.randn(routing.rows, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: dispatch(x, routing), x)
    assert torch.autograd.gradcheck(lambda rows: combine(rows, None, routing), rows)
    assert torch.autograd.gradcheck(lambda rows, weights: combine(rows, weights, routing), (rows, weights))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_weights_of_a_wider_dtype_widen_the_result_and_each_gradient_keeps_its_own(dtype):
    routing = route(torch.tensor([[0, 1], [1, 0]]), experts=2)
    rows = torch.randn(4, 3, dtype=dtype, requires_grad=True)
    weights = torch.rand(2, 2, requires_grad=True)
    y = combine(rows, weights, routing)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert (rows.grad.dtype, weights.grad.dtype) == (dtype, torch.float32)


def test_mistakes_are_told():
    chosen = torch.tensor([[0, 1], [1, 0]])
    routing = route(chosen, experts=2)
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="3 experts have 3 rows of 4: some expert's id lies outside of 0 to 2"):
            route(torch.tensor([[0, 1], [1, wrong]]), experts=3)
    with pytest.raises(ValueError, match="the operand of combine has 3 rows, but its routing 4"):
        combine(torch.ones(3, 2), None, routing)
    for f in (exchange_counts, own_counts):
        with pytest.raises(ValueError, match="2 experts cannot be cut evenly into 3 ranks of ep"):
            simulate({"ep": 3}, lambda mesh, f=f: f(routing, mesh["ep"]))
    with pytest.raises(ValueError, match="by the routing that exchange_counts returns"):
        simulate({"ep": 2}, lambda mesh: to_experts(torch.ones(4, 2), routing, mesh["ep"]))
    with pytest.raises(ValueError, match="a parameter has 1 experts, but the rows are those of 2"):
        expert_linear(torch.ones(4, 2), torch.ones(1, 2, 2), routing)


def test_an_id_that_nobody_counted_is_found_where_the_counts_come_to_the_host(monkeypatch):
    monkeypatch.setattr("graphpar.runtime.routing._check_ids", lambda routing: None)  # as on a GPU
    routing = route(torch.tensor([[0], [7]]), experts=2)
    for take in (exchange_counts, own_counts):
        with pytest.raises(ValueError, match="2 experts have 1 rows of 2"):
            simulate({"ep": 2}, lambda mesh, take=take: take(routing, mesh["ep"]))


def test_the_blocks_of_experts_are_those_of_a_cut_dimension():
    routing = route(torch.tensor([[0], [3], [1], [3], [5]]), experts=6)
    own = simulate({"ep": 3}, lambda mesh: own_counts(routing, mesh["ep"]))
    assert [one.sizes for one in own] == [[1, 1], [0, 2], [0, 1]]
    assert [one.counts.tolist() for one in own] == [one.sizes for one in own]
    assert all(a.first + a.rows == b.first for a, b in pairwise(own))
