"""Simulated ranks end together, and say who did what."""

import threading
import time

import pytest
import torch

from graphpar.runtime import CollectiveError, all_gather, all_reduce, grad_all_reduce, simulate
from graphpar.runtime.axis import Executed


def test_results_come_in_rank_order_with_their_coordinates():
    assert simulate({"dp": 2, "tp": 2}, lambda mesh: tuple(mesh.coordinates.values())) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    assert simulate({}, lambda mesh: mesh.world.size) == [1]


def test_every_rank_gets_the_same_bits():
    def f(mesh):
        x = torch.randn(1000, generator=torch.Generator().manual_seed(mesh.rank))
        return all_reduce(x, mesh["dp", "tp"])

    first, *others = simulate({"dp": 2, "tp": 2}, f)
    expected = torch.zeros(1000)
    for rank in range(4):
        expected += torch.randn(1000, generator=torch.Generator().manual_seed(rank))
    assert torch.equal(first, expected)
    assert all(torch.equal(first, other) for other in others)


def test_ranks_do_not_share_results():
    def f(mesh):
        y = all_reduce(torch.ones(3), mesh["tp"])
        mesh["tp"].barrier()
        y += mesh.rank
        mesh["tp"].barrier()
        return y[0].item()

    assert simulate({"tp": 3}, f) == [3, 4, 5]


def test_a_product_axis_counts_outermost_first():
    ranks = simulate({"dp": 2, "tp": 2}, lambda mesh: (mesh["dp", "tp"].rank, mesh["tp", "dp"].rank, mesh["tp"].rank))
    assert ranks == [(0, 0, 0), (1, 2, 1), (2, 1, 0), (3, 3, 1)]


def test_an_error_on_one_rank_ends_all_and_is_raised_with_the_rank():
    def f(mesh):
        if mesh.rank == 2:
            raise KeyError("lost")
        return all_reduce(torch.ones(1), mesh["dp", "tp"])

    start = time.monotonic()
    with pytest.raises(KeyError, match="lost") as caught:
        simulate({"dp": 2, "tp": 2}, f)
    assert time.monotonic() - start < 5
    assert caught.value.__notes__ == ["on rank 2 of the simulated mesh dp=2 x tp=2"]
    assert not [t for t in threading.enumerate() if t.name.startswith("rank ")]


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (lambda x, axis: all_gather(x, axis, 0), r"all_gather over tp of float32\[2, 3\]"),
        (lambda x, axis: all_reduce(x[:1], axis), r"all_reduce over tp of float32\[1, 3\]"),
        (lambda x, axis: all_reduce(x.double(), axis), r"all_reduce over tp of float64\[2, 3\]"),
    ],
)
def test_different_collectives_are_an_error_that_names_both(other, text):
    def f(mesh):
        x = torch.ones(2, 3)
        return all_reduce(x, mesh["tp"]) if mesh.rank == 0 else other(x, mesh["tp"])

    with pytest.raises(CollectiveError) as caught:
        simulate({"tp": 2}, f)
    assert "all_reduce over tp of float32[2, 3]" in str(caught.value)
    with pytest.raises(CollectiveError, match=text):
        raise caught.value


def test_different_axes_are_found_at_once():
    def f(mesh):
        return all_reduce(torch.ones(1), mesh["tp" if mesh.rank == 0 else "dp"])

    start = time.monotonic()
    with pytest.raises(
        CollectiveError, match=r"rank 0 waits in all_reduce over tp .* for rank 1; rank 2 waits in .* dp"
    ):
        simulate({"dp": 2, "tp": 2}, f)
    assert time.monotonic() - start < 5


def test_a_collective_too_few_is_found_at_once():
    def f(mesh):
        return all_reduce(torch.ones(1), mesh["tp"]) if mesh.rank else None

    with pytest.raises(CollectiveError, match=r"rank 1 waits in all_reduce .* for rank 0; rank 0 has ended"):
        simulate({"tp": 2}, f)


def test_a_rank_that_never_comes_is_named_after_the_timeout():
    stop = threading.Event()

    def f(mesh):
        if mesh.rank == 1:
            stop.wait(3)
        return all_reduce(torch.ones(1), mesh["tp"])

    with pytest.raises(CollectiveError, match=r"rank 0 waited 0\.2 s in all_reduce over tp .* for rank 1"):
        simulate({"tp": 2}, f, timeout=0.2)
    stop.set()


def test_a_late_sum_lets_other_collectives_pass():
    def f(mesh):
        x = torch.full((2,), float(mesh.rank))
        handle = mesh["dp"].start_all_reduce(x)
        y = all_reduce(torch.ones(1), mesh["tp"])
        handle.wait()
        return x[0].item() + y.item()

    assert simulate({"dp": 2, "tp": 2}, f) == [4, 6, 4, 6]


def test_rows_are_exchanged_unevenly():
    def f(mesh):
        send, receive = ([1, 2], [1, 0]) if mesh.rank == 0 else ([0, 1], [2, 1])
        x = torch.arange(sum(send)) + 10 * mesh.rank
        return mesh["ep"].all_to_all_rows(x, send, receive).tolist()

    assert simulate({"ep": 2}, f) == [[0], [1, 2, 10]]

    def uneven(mesh):
        send, receive = ([0, 2], [0, 1]) if mesh.rank == 0 else ([1, 1], [1, 1])
        return mesh["ep"].all_to_all_rows(torch.ones(2), send, receive)

    with pytest.raises(CollectiveError, match="rank 0 sends 2 rows to rank 1, which expects 1"):
        simulate({"ep": 2}, uneven)


def test_broadcast_takes_the_value_of_one_rank():
    assert simulate({"tp": 3}, lambda mesh: mesh["tp"].broadcast(torch.tensor(mesh.rank), source=1).item()) == [1, 1, 1]


def test_the_log_has_phase_kind_axis_shape_and_bytes():
    def f(mesh):
        x = torch.ones(2, 3, requires_grad=True)
        y = all_gather(grad_all_reduce(x, mesh["dp"]), mesh["tp"], 1)
        y.sum().backward()
        with mesh.during("step"):
            mesh.world.all_reduce(torch.ones(()))
        return mesh.log

    expected = [
        Executed("forward", "all_gather", "tp", (2, 3), 24),
        Executed("backward", "reduce_scatter", "tp", (2, 6), 48),
        Executed("backward", "all_reduce", "dp", (2, 3), 24),
        Executed("step", "all_reduce", "dp tp", (), 4),
    ]
    assert simulate({"dp": 2, "tp": 2}, f, log=True) == [expected] * 4


def test_threads_and_grad_mode_of_the_caller_stay_as_they_were():
    before = torch.get_num_threads()
    with torch.no_grad():
        assert simulate({"tp": 2}, lambda mesh: torch.is_grad_enabled()) == [True, True]
        assert not torch.is_grad_enabled()
    assert torch.get_num_threads() == before
