"""What goes wrong with pipelines elsewhere: tied copies, norms, microbatches, odd models, values that skip stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from parts import MLP, Attention, Block, Decoder
from staged import ALONE, holds, program, read, staged
from torch import Tensor, nn
from written import Written, with_labels

from graphpar.runtime import Mesh, simulate
from graphpar.runtime.data import split
from graphpar.runtime.initialise import held_tensors, load
from graphpar.runtime.weights import save_weights

pytestmark = pytest.mark.xdist_group("cases")
# Rows with all labels, with few and with none: microbatches of equal size that count unequally.
BATCHES = [with_labels(16, 0, 3, 9), with_labels(2, 16, 0, 0, seed=1), with_labels(7, 7, 16, 1, seed=2)]


def blocks(count: int) -> list[nn.Module]:
    return [Block() for _ in range(count)]


class Tied(Decoder):
    """The head is the embedding."""

    def __init__(self) -> None:
        super().__init__(blocks(4))
        self.head.weight = self.tok.weight


class Angles(Block):
    """A block that reads a table which all blocks are given."""

    def forward(self, x: Tensor, table: Tensor) -> Tensor:
        return super().forward(x * table)


class Table(Decoder):
    """One table for all blocks, made before the first of them."""

    def __init__(self) -> None:
        super().__init__([Angles() for _ in range(4)])
        self.register_buffer("waves", torch.linspace(0, 3, 16 * 32).view(16, 32).cos())

    def run(self, x: Tensor) -> Tensor:
        table = self.waves[: x.shape[1]] + 0.5
        for block in self.blocks:
            x = block(x, table)
        return x


class Skip(Decoder):
    """The head reads what the embedding made."""

    def run(self, x: Tensor) -> Tensor:
        return super().run(x) + x


class Classifier(Decoder):
    """Sorts whole rows: the state of the last token against the row's first label."""

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        x = self.norm(self.run(self.embed(input_ids)))
        return F.cross_entropy(self.head(x[:, -1]), labels[:, 0])


TIED = Written(Tied)
PLAIN = Written(lambda: Decoder(blocks(4)))


@pytest.mark.parametrize("schedule", ["1f1b", "zero_bubble"])
def test_tied_copies_on_two_stages_are_one_matrix_after_every_step(schedule: str) -> None:
    made, (first, last) = holds(TIED, staged(schedule=schedule), BATCHES)
    assert made.document["pipeline"]["shared"] == {"tok.weight": [0, 1]}
    before = TIED.weights["tok.weight"].double()
    for ours, theirs in zip(first, last, strict=True):
        assert torch.equal(ours.parameters["tok.weight"], theirs.parameters["tok.weight"])
        assert not torch.equal(ours.parameters["tok.weight"], before)
        before = ours.parameters["tok.weight"]


def test_tied_copies_of_several_replicas_are_one_as_well() -> None:
    _, ranks = holds(TIED, staged(dp=2), BATCHES)
    assert len(ranks) == 4
    for step in range(3):
        copies = [rank[step].parameters["tok.weight"] for rank in ranks]
        assert all(torch.equal(copy, copies[0]) for copy in copies)


def test_the_norm_is_of_all_stages_with_a_tied_tensor_once() -> None:
    _, (first, last) = holds(TIED, staged(), BATCHES)
    for ours, theirs in zip(first, last, strict=True):
        assert torch.equal(ours.norm, theirs.norm)
        squares = [g.square().sum() for rank in (ours, theirs) for g in rank.gradients.values()]
        twice = torch.stack(squares).sum()  # the tied gradient is whole on both
        once = twice - ours.gradients["tok.weight"].square().sum()
        assert float(ours.norm) == pytest.approx(float(once.sqrt()), rel=1e-12)
        assert float(twice / once) > 1.01  # the mistake would show


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_step_does_not_depend_on_the_number_of_microbatches(count: int) -> None:
    """One of these four rows has no label, so that some microbatches have none."""
    holds(PLAIN, staged(schedule="gpipe", microbatches=count), BATCHES)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_fewer_microbatches_than_stages_end(schedule: str, count: int) -> None:
    holds(PLAIN, staged(4, schedule, count), BATCHES[:1])


def test_every_rank_has_the_loss() -> None:
    _, ranks = holds(PLAIN, staged(4), BATCHES)
    for step in range(3):
        assert all(torch.equal(rank[step].loss, ranks[0][step].loss) for rank in ranks)


def test_a_table_that_all_layers_read_is_no_message() -> None:
    made, _ = holds(Written(Table), staged(4), BATCHES[:1])
    assert made.document["buffers"]["waves"]["stages"] == [0, 1, 2, 3]
    assert [len(stage["sends"]) for stage in made.document["pipeline"]["stages"]] == [1, 1, 1, 0]


def test_a_value_that_skips_stages_is_handed_on_by_each() -> None:
    made, _ = holds(Written(lambda: Skip(blocks(4))), staged(4), BATCHES[:1])
    assert [len(stage["sends"]) for stage in made.document["pipeline"]["stages"]] == [2, 2, 2, 0]


def test_first_and_last_layers_may_be_of_another_kind() -> None:
    def odd() -> nn.Module:
        return Decoder([Block(mlp=MLP(hidden=48)), *blocks(2), Block(attention=Attention(bias=False))])

    for document in (staged(), staged(4), staged(2, "interleaved")):
        holds(Written(odd), document, BATCHES[:1])


def test_seven_layers_on_four_stages() -> None:
    made, _ = holds(Written(lambda: Decoder(blocks(7))), staged(4), BATCHES[:1])
    sizes = [stop - start for start, stop in (s["layers"] for s in made.document["pipeline"]["stages"])]
    assert sum(sizes) == 7 and set(sizes) == {1, 2}


def test_rows_may_be_classified_in_stages() -> None:
    holds(Written(lambda: Classifier(blocks(4))), staged(), [with_labels(16, 16, 16, 16), with_labels(16, 0, 16, 16)])


def test_stages_read_the_same_data_to_its_end_and_over_it() -> None:
    """Steps of 8 windows out of 27, so that the fourth spans two passes; 3 held-out windows in batches of 4 rows."""
    tokens = torch.randint(32, (16 * 31,), generator=torch.Generator().manual_seed(5)).to(torch.int32)
    assert [len(windows) for windows in split(tokens, 16, 1)] == [27, 3]
    (alone,) = read(PLAIN, program(PLAIN, ALONE), tokens, rows=8, steps=5)
    for rank in read(PLAIN, program(PLAIN, staged(4)), tokens, rows=8, steps=5):
        assert rank == pytest.approx(alone, rel=1e-9)


def test_what_one_cut_saves_starts_every_other(tmp_path: Path) -> None:
    """Into more stages, other ones, and no stages at all: to the bit."""
    made, path = program(TIED, staged()), tmp_path / "model.safetensors"
    simulate(
        made.mesh, lambda mesh: save_weights(path, made.model(mesh, TIED.weights, None), made.plan, made.tape, mesh)
    )
    zeros = {name: torch.zeros_like(tensor) for name, tensor in TIED.weights.items()}
    for document in (
        staged(4),
        staged(2, "zbv", stages=["blocks[0:1]", "blocks[1:2]", "blocks[2:3]", "blocks[3:4]"]),
        ALONE,
    ):
        other = program(TIED, document)

        def rank(mesh: Mesh, other=other) -> dict[str, Tensor]:
            model = other.model(mesh, zeros, None)
            load(model, other.plan, other.tape, path, mesh)
            return held_tensors(model, other.plan)

        found = [item for held in simulate(other.mesh, rank) for item in held.items()]
        assert {name for name, _ in found} == set(TIED.weights)
        assert all(torch.equal(tensor, TIED.weights[name]) for name, tensor in found)
