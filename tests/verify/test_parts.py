"""The parts of the verifier: batches, comparison, the comments of model.py, lifted casts."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphpar.errors import GraphparError
from graphpar.runtime import Mesh, dispatch, exchange_counts, route, simulate, to_experts
from graphpar.runtime.plan import Input, Plan, Stored
from graphpar.runtime.shards import Place, cut, read_dims
from graphpar.verify.batches import Batches, Size, fitting, joined, require_fitting
from graphpar.verify.compare import errors, gather, relative, size, worst
from graphpar.verify.lift import LiftedCasts
from graphpar.verify.rows import Ways, brought_home
from graphpar.verify.shapes import layout, read_shape
from graphpar.verify.statements import RETURNED, parameter_line, statements, watched

PLAN = Plan(
    mesh={"dp": 2, "tp": 2},
    data_axes=("dp",),
    inputs=(Input("ids", torch.int64, {0: ("dp",)}), Input("labels", torch.int64, {0: ("dp",)})),
    parameters={},
    buffers={},
    unread={},
    labels="same",
    ignore_index=-100,
    vocab=11,
    max_seq=32,
    seq_multiple=2,
)


# ---- batches --------------------------------------------------------------------------------------------------------


def test_more_tokens_than_the_model_has_positions_are_refused():
    plan = replace(PLAN, max_seq=128, seq_multiple=2)
    with pytest.raises(GraphparError) as caught:
        require_fitting(plan, None, 129, Path("build"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.why[0] == "the model has 128 positions, and 129 > 128"
    assert diagnostic.fix == "graphpar verify build --length 128"


def test_labels_are_missing_unevenly_and_inputs_are_tensors_of_their_own():
    ids, labels = Batches(PLAN, 0).draw(Size(4, 24)).values()
    valid = (labels != -100).sum(1).tolist()
    assert valid[:2] == [1, 3]
    assert all(3 < n < 24 for n in valid[2:])
    assert not torch.equal(ids[2:], labels[2:])
    assert ids.untyped_storage().data_ptr() != labels.untyped_storage().data_ptr()
    assert labels[:, 1:].ne(-100).any(1).all()  # what a model drops by its own shift is not all there is


def test_a_seed_gives_the_same_batches_and_a_batch_is_drawn_once():
    a, b = Batches(PLAN, 3), Batches(PLAN, 3)
    first, second = a.draw(Size(4, 8)), a.draw(Size(4, 8))
    assert torch.equal(first["ids"], b.draw(Size(4, 8))["ids"])
    assert not torch.equal(first["ids"], second["ids"])
    assert joined([first, second])["labels"].shape == (8, 8)


@pytest.mark.parametrize("labels", ["same", "next"])
def test_the_probe_changes_only_what_comes_after_the_label(labels):
    before, after = Batches(replace(PLAN, labels=labels), 1).probe(Size(4, 24))
    assert torch.equal(before["labels"], after["labels"])
    ((row, at),) = (before["labels"] != -100).nonzero().tolist()
    differs = (before["ids"] != after["ids"]).any(0).nonzero().flatten()
    assert row == 3
    assert differs.min() == (at if labels == "same" else at + 1)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 8), st.integers(8, 64))
def test_a_fitting_size_is_cut_evenly_and_has_positions(rows, length, unit, positions):
    found = fitting(replace(PLAN, seq_multiple=unit, max_seq=positions), rows, length)
    assert found.rows % 2 == 0
    assert found.rows >= rows
    assert found.length % unit == 0
    assert unit <= found.length <= max(positions, unit)


def test_a_build_that_fits_no_sequence_or_has_other_inputs_is_refused():
    with pytest.raises(GraphparError, match="no sequence fits"):
        fitting(replace(PLAN, seq_multiple=64))
    with pytest.raises(GraphparError, match="only a model of token ids and labels"):
        Batches(replace(PLAN, vocab=None), 0)


# ---- comparison -----------------------------------------------------------------------------------------------------


def test_a_tensor_of_rounding_errors_is_measured_against_the_largest():
    noise = {"a": torch.ones(3), "k.bias": torch.full((3,), 1e-18)}
    assert worst({**noise, "k.bias": -noise["k.bias"]}, noise).error < 1e-12
    assert worst({**noise, "a": noise["a"] * (1 + 1e-6)}, noise).error == pytest.approx(1e-6, rel=0.1)


def test_what_is_missing_or_not_a_number_differs():
    one = {"a": torch.ones(2)}
    assert worst({}, one).error == worst({**one, "b": torch.ones(1)}, one).error == float("inf")
    assert not worst({"a": torch.tensor([1.0, torch.nan])}, one).error <= 1
    assert worst({"a": torch.tensor([1.0, torch.nan])}, one).check("t", "").outcome == "failed"
    assert errors({"a": torch.ones(3)}, one) == {"a": float("inf")}


def test_equal_infinities_do_not_differ():
    mask = torch.tensor([-torch.inf, 0.5])
    assert relative(mask + torch.tensor([0, 1e-3]), mask, size(mask)) == pytest.approx(2e-3, rel=1e-3)
    assert relative(torch.tensor([0.0, 0.5]), mask, 1.0) == float("inf")


def test_parts_are_joined_and_unequal_replicas_and_padding_are_seen():
    places = [Place.of({"dp": 2, "tp": 2}, rank) for rank in range(4)]
    stored = Stored("w", (5, 2), (3, 2), torch.float32, read_dims([[[[6, ["tp"]]]], [[[2, []]]]]))
    full = torch.arange(10.0).reshape(5, 2) + 1
    parts = [cut(full, stored.dims, place) for place in places]
    found = gather(parts, stored, places)
    assert torch.equal(found.full, full)
    assert (found.unequal, found.padding) == ((), 0)
    parts[0][0, 0] += 1
    parts[3][2, 0] = 7
    found = gather(parts, stored, places)
    assert found.unequal == (0, 1)
    assert found.padding == 7


# ---- comments -------------------------------------------------------------------------------------------------------

SIZES = {"heads": 4, "kv_heads": 2, "d_head": 8, "vocab": 97, "seq": 24}
MESH = {"dp": 2, "tp": 2}


@pytest.mark.parametrize(
    ("text", "local", "expected"),
    [
        ("batch@dp seq d_model", (2, 24, 32), [[[[4, ["dp"]]]], [[[24, []]]], [[[32, []]]]]),
        ("batch (3 heads@tp d_head)", (4, 48), [[[[4, []]]], [[[3, []], [4, ["tp"]], [8, []]]]]),
        (
            "(heads@tp d_head + kv_heads@tp d_head)",
            (24,),
            [[[[4, ["tp"]], [8, []]], [[2, ["tp"]], [8, []]]]],
        ),
        ("vocab@tp", (49,), [[[[98, ["tp"]]]]]),
        ("(2 what@tp)", (6,), [[[[2, []], [6, ["tp"]]]]]),
        ("seq@dp+tp", (6,), [[[[24, ["dp", "tp"]]]]]),
        ("scalar   partial(dp)", (), []),
        ("(heads@tp 2)   partial(dp, tp)", (4,), [[[[4, ["tp"]], [2, []]]]]),
    ],
)
def test_a_comment_says_which_part_a_rank_holds(text, local, expected):
    shape = read_shape(text)
    assert shape is not None
    assert layout(shape, local, MESH, SIZES) == read_dims(expected)


def test_pending_sums_and_used_axes_are_read():
    shape = read_shape("batch@dp seq d_model   partial(tp)")
    assert shape is not None
    assert shape.pending == ("tp",)
    assert shape.used() == {"dp", "tp"}


@pytest.mark.parametrize("text", ["", "1 1 ?30 ?31", "the sum over heads, cut by seq;"])
def test_other_comments_are_no_shapes(text):
    assert read_shape(text) is None


def test_sizes_that_do_not_fit_place_nothing():
    shape = read_shape("batch (3 heads@tp d_head)")
    assert shape is not None
    assert layout(shape, (4, 50), MESH, SIZES) is None
    assert layout(shape, (4,), MESH, SIZES) is None


# ---- statements -----------------------------------------------------------------------------------------------------

TEXT = """
class Block(nn.Module):
    def __init__(self, mesh):
        self.ln = Parameters(
            weight=mesh.parameter(4),  # d_model
            bias=mesh.parameter(4),    # d_model
        )

    def forward(self, x):          # batch seq@tp
        y = all_gather(x, self.tp)  # batch seq    c needs all of seq
        a, b = y.chunk(2)          # batch seq   partial(tp)
        for block in self.blocks:
            y = block(
                y, a,
            )                      # batch seq@tp
        return y + b               # batch seq
"""


def test_statements_have_names_shapes_and_what_they_use():
    found = statements(TEXT)
    gather_, chunk, loop, last = found.values()
    assert (gather_.is_move, gather_.moves, gather_.names) == (True, "x", ("y",))
    assert [s and s.text for s in gather_.shapes] == ["batch seq"]
    assert chunk.names == ("a", "b")
    assert [s and s.pending for s in chunk.shapes] == [("tp",), ("tp",)]
    assert loop.uses == {"block", "y", "a"}
    assert [s and s.text for s in loop.shapes] == ["batch seq@tp"]
    assert (last.names, last.code) == ((RETURNED,), "return y + b")
    assert last.computes == "return y + b"


def test_a_watched_program_tells_every_value_in_order():
    told = []

    def see(_, line, name, value):
        told.append((name, value))
        return value

    names = {"_see": see, "nn": torch.nn, "all_gather": lambda x, axis: x}
    exec(compile(watched(TEXT.replace("nn.Module", "")), "model.py", "exec"), names)
    block = names["Block"].__new__(names["Block"])
    block.tp, block.blocks = None, [lambda y, a: y + 1]
    result = block.forward(torch.tensor([1, 2]))
    assert [name for name, _ in told] == ["y", "a", "b", "y", RETURNED]
    assert result.tolist() == [4, 5]


def test_a_parameter_is_found_where_it_is_made():
    assert parameter_line(TEXT, "Block", ["ln", "bias"]) == 6
    assert parameter_line(TEXT, "Block", ["nothing"]) is None
    assert isinstance(watched(TEXT), ast.Module)


# ---- casts ----------------------------------------------------------------------------------------------------------


def test_lifted_casts_keep_float64_forward_and_backward():
    x = torch.randn(5, dtype=torch.float64, requires_grad=True)
    plain = torch.autograd.grad(x.exp().sum(), x)[0]
    with LiftedCasts():
        y = x.float().exp().to(torch.bfloat16).to(torch.float32)
        (gradient,) = torch.autograd.grad(y.sum(), x)
    assert y.dtype == torch.float64
    assert torch.equal(gradient, plain)


def test_counts_are_as_wide_as_what_is_compared():
    with LiftedCasts():
        assert torch.arange(3).float().dtype == torch.float64


def test_lifted_casts_leave_the_rest_alone():
    with LiftedCasts():
        assert torch.ones(2).to(torch.bfloat16).dtype == torch.bfloat16
        assert torch.ones(2, dtype=torch.float64).to(torch.int64).dtype == torch.int64
        assert torch.ones(2, dtype=torch.float64).softmax(0, dtype=torch.float32).dtype == torch.float64


# ---- experts --------------------------------------------------------------------------------------------------------


@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 2**16))
def test_rows_of_experts_come_home_to_what_chose_them(topk: int, tokens: int, seed: int):
    chosen = torch.rand(2, tokens, 4, generator=torch.Generator().manual_seed(seed)).argsort(-1)[..., :topk]
    here, there = "(experts batch@ep topk 1/4) d", "(experts@ep batch topk 1/4) d   partial(tp)"

    def rank(mesh: Mesh):
        axis, ways = mesh["ep"], Ways()
        routing = route(chosen[mesh.rank], experts=4)
        routed = exchange_counts(routing, axis)
        ways.keep(routing, here)
        ways.keep(routed, there)
        rows = dispatch(torch.arange(tokens).unsqueeze(1) + 100.0 * mesh.rank, routing)
        return rows, to_experts(rows, routed, axis), ways.of(here), ways.of(there)

    before, after, *ways = zip(*simulate({"ep": 2}, rank), strict=True)
    homes = [brought_home(parts, way, [[0, 1]]) for parts, way in zip((before, after), ways, strict=True)]
    for home in homes:
        for number, part in enumerate(home):
            wanted = torch.arange(tokens).repeat_interleave(topk).unsqueeze(1) + 100.0 * number
            assert torch.equal(part, wanted)
    assert [way[0].shape.text for way in ways] == ["(batch@ep topk) d", "(batch@ep topk) d   partial(tp)"]
    assert brought_home([x[:-1] for x in after], ways[1], [[0, 1]]) is None


def test_one_token_everywhere_leaves_labels_as_they_are():
    ids, labels = Batches(PLAN, 0).alike(Size(4, 6)).values()
    assert len(ids.unique()) == 1 and len(labels.unique()) > 1


def test_booleans_have_a_size():
    assert size(torch.tensor([False, True])) == 1 and size(torch.tensor([False])) == 0
