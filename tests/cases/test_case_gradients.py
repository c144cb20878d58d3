"""However labels, rows and microbatches fall on ranks, loss and gradients are those of one device."""

from __future__ import annotations

import pytest
import torch
from builds import layout
from parts import Block, Decoder
from torch import Tensor
from written import DP2, DP2_TP2, DP4, TENSOR, TP2, Written, accumulated, with_labels

pytestmark = pytest.mark.xdist_group("cases")
PLAIN = Written(lambda: Decoder([Block() for _ in range(2)]))
MICROBATCHES = [with_labels(2, 0, seed=1), with_labels(16, 16, seed=2), with_labels(0, 0, seed=3), with_labels(7, 16)]


@pytest.mark.parametrize("counts", [(3, 0, 16, 13), (0, 0, 16, 16), (0, 0, 0, 1)])
def test_a_rank_may_have_few_labels_or_none(counts: tuple[int, ...]) -> None:
    batch = with_labels(*counts)
    for document in (DP2, DP4, DP2_TP2, layout({"dp": 2, "cp": 2}, "batch dp", "seq cp")):
        PLAIN.holds(document, batch)


@pytest.mark.parametrize("document", [DP2, DP2_TP2], ids=["dp2", "dp2xtp2"])
@pytest.mark.parametrize("cuts", [1, 2, 4])
def test_a_step_does_not_depend_on_how_its_rows_are_cut_into_microbatches(cuts: int, document: dict) -> None:
    whole = {name: torch.cat([batch[name] for batch in MICROBATCHES]) for name in MICROBATCHES[0]}
    parts: list[dict[str, Tensor]] = [{} for _ in range(cuts)]
    for name, rows in whole.items():
        for part, chunk in zip(parts, rows.chunk(cuts)):
            part[name] = chunk
    expected = PLAIN.alone(whole)
    results = accumulated(PLAIN.compiled(document), PLAIN.weights, parts)
    for name in ("norm.weight", "blocks.1.attn.o.bias", "pos.weight"):  # whole on every rank
        for result in results:
            assert torch.allclose(result.gradients[name], expected.gradients[name], rtol=1e-9, atol=1e-12), name
    assert all(torch.equal(result.loss, results[0].loss) for result in results), "one loss on all ranks, to the bit"
    assert results[0].loss.item() == pytest.approx(expected.loss.item(), rel=1e-12)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_smallest_batches_are_no_special_case(rows: int, length: int) -> None:
    """An export takes sizes of 0 and 1 for constants: the program must not."""
    for document in (layout({"dp": 1}, "batch dp"), TP2):
        PLAIN.holds(document, with_labels(*[length] * rows, length=length))


def test_replicas_of_a_norm_have_one_gradient_to_the_bit() -> None:
    build = PLAIN.compiled(layout({"dp": 2, "tp": 2}, "batch dp", *TENSOR, "seq tp"))
    ranks = accumulated(build, PLAIN.weights, [with_labels(16, 9, 16, 2)])
    whole = [n for n, e in build.plan["parameters"].items() if not e["sharded"]]
    assert {"norm.weight", "blocks.0.norm1.bias", "blocks.1.mlp.down.bias"} <= set(whole)
    for name in whole:
        assert all(torch.equal(rank.gradients[name], ranks[0].gradients[name]) for rank in ranks), name


def test_tokens_cut_for_one_op_alone_leave_every_size_as_it_was() -> None:
    """A rule asks for a cut of a value that is whole before and after it: it is sliced, never taken for a part."""
    region = {"at": "blocks[0].norm1", "layout": [{"seq": "tp"}]}
    build = PLAIN.holds(layout({"tp": 2}, *TENSOR, regions=[region]))
    assert build.plan["parameters"]["blocks.0.norm1.weight"]["grad_sum"] == ["tp"]
    assert build.plan["parameters"]["blocks.0.norm2.weight"]["grad_sum"] == []


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_padding_of_the_vocabulary_never_counts(ranks: int) -> None:
    PLAIN.holds(layout({"tp": ranks}, "vocab tp", uneven={"vocab": "pad"}))


def test_two_axes_over_the_same_number_of_ranks_are_two_axes() -> None:
    build = PLAIN.holds(layout({"a": 2, "b": 2}, "heads a", "d_ff b", "vocab b"))
    sharded = {name: entry["sharded"] for name, entry in build.plan["parameters"].items()}
    assert sharded["blocks.0.attn.q.weight"] == ["a"]
    assert sharded["blocks.0.mlp.up.weight"] == ["b"]
