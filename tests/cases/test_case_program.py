"""What a program is besides its numbers: its inputs, its modes, the dtypes of what it holds."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from parity import module_of, part_of
from parts import Attention, Block, Decoder
from torch import Tensor, nn
from written import DP2, TP2, Written, plain

from graphpar.compiler import Build
from graphpar.errors import GraphparError
from graphpar.runtime import Mesh, simulate

pytestmark = pytest.mark.xdist_group("case program")


class Dropping(Decoder):
    """Half of the stream, and half of what attention looks at, is dropped."""

    def embed(self, input_ids):
        return F.dropout(super().embed(input_ids), 0.5, self.training)


class DroppingAttention(Attention):
    def forward(self, x):
        q, k, v = (w(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for w in (self.q, self.k, self.v))
        rate = 0.5 if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=rate)
        return self.o(y.transpose(1, 2).flatten(2))


class Narrow(Decoder):
    """Parameters in bfloat16 and a table in float32 that no file has, as rotary tables are."""

    def __init__(self) -> None:
        standard = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        super().__init__([Block()])
        torch.set_default_dtype(standard)
        self.register_buffer("angles", torch.linspace(0.001, 1.0, 32, dtype=torch.float32), persistent=False)

    def embed(self, input_ids):
        x = super().embed(input_ids)
        return (x.float() * self.angles.cos()).to(x.dtype)

    def loss(self, logits, labels):
        return super().loss(logits.float(), labels)


@cache
def dropping() -> Written:
    return Written(lambda: Dropping([Block(attention=DroppingAttention())]))


def losses(build: Build, weights: dict[str, Tensor], *, training: bool, seeds: tuple[int, ...]) -> list[float]:
    """The loss for each seed, on all ranks of a build that cuts no rows."""
    module, plan, batch = module_of(build), build.plan, plain()

    def rank(mesh: Mesh) -> list[float]:
        at = {axis: mesh.coordinate(axis) for axis in plan["mesh"]}
        model = getattr(module, plan["class"])(mesh).double().train(training)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.copy_(part_of(weights[name], plan["parameters"][name]["dims"], plan["mesh"], at))
            found = []
            for seed in seeds:
                mesh.seed(seed)
                found.append(float(model(**batch, count=model.count(**batch))))
        return found

    first, *others = simulate(plan["mesh"], rank)
    assert all(other == first for other in others)
    return first


def test_dropout_is_on_in_training_and_off_in_evaluation() -> None:
    model, build = dropping(), dropping().compiled(TP2)
    given = build, dict(model.weights)
    expected = float(model.alone(plain()).loss)
    assert losses(*given, training=False, seeds=(1, 2)) == pytest.approx([expected, expected], rel=1e-12)
    first, second, again = losses(*given, training=True, seeds=(1, 2, 1))
    assert first == again and len({first, second, expected}) == 3


@pytest.mark.parametrize("document", [DP2, TP2], ids=["dp2", "tp2"])
def test_a_table_stays_wide_where_parameters_are_narrow(document: dict) -> None:
    build = Written(Narrow).compiled(document)
    assert {entry["dtype"] for entry in build.plan["parameters"].values()} == {"bfloat16"}
    assert build.plan["buffers"]["angles"]["dtype"] == "float32"

    def step(mesh: Mesh) -> tuple[torch.dtype, set[torch.dtype], set[torch.dtype]]:
        model: nn.Module = getattr(module_of(build), build.plan["class"])(mesh)
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.fill_(0.1)
        batch = {name: rows.chunk(mesh.sizes.get("dp", 1))[0] for name, rows in plain().items()}
        model(**batch, count=torch.tensor(1)).backward()
        gradients = {p.grad.dtype for p in model.parameters() if p.grad is not None}
        return model.get_buffer("angles").dtype, {p.dtype for p in model.parameters()}, gradients

    assert simulate(build.plan["mesh"], step) == [(torch.float32, {torch.bfloat16}, {torch.bfloat16})] * 2


class NarrowLoss(Narrow):
    """In bfloat16 from the tables to the loss."""

    embed = Decoder.embed
    loss = Decoder.loss


def test_a_loss_may_be_narrow() -> None:
    assert Written(NarrowLoss).captured.graph.outputs[0].dtype == "bfloat16"
    Written(NarrowLoss).holds(TP2)


def test_an_input_that_was_not_captured_is_refused() -> None:
    build, batch = dropping().compiled(TP2), plain()

    def masked(mesh: Mesh) -> None:
        model = getattr(module_of(build), build.plan["class"])(mesh)
        mask = torch.ones_like(batch["input_ids"])
        with pytest.raises(TypeError, match="attention_mask"):
            model(**batch, count=model.count(**batch), attention_mask=mask)

    simulate(build.plan["mesh"], masked)


class OneBatch(Decoder):
    """Its author takes the number of rows for a plain number."""

    def embed(self, input_ids):
        return super().embed(input_ids) + torch.zeros(int(input_ids.shape[0]), 1, 1)


def test_a_batch_that_came_out_fixed_is_refused() -> None:
    with pytest.raises(GraphparError) as caught:
        Written(lambda: OneBatch([Block()])).compiled(DP2)
    (told,) = caught.value.diagnostics
    assert told.kind == "model" and "batch" in told.message


@pytest.mark.parametrize("convert", [lambda model: model.float(), lambda model: model.to("cpu")])
def test_a_conversion_that_changes_nothing_is_none(convert) -> None:
    build = Written(lambda: convert(Decoder([Block()]))).compiled(DP2)
    assert (
        build.plan["parameters"].keys() == Written(lambda: Decoder([Block()])).compiled(DP2).plan["parameters"].keys()
    )


def test_a_conversion_to_another_dtype_says_what_to_write() -> None:
    with pytest.raises(GraphparError, match=r"build it in that dtype"):
        Written(lambda: Decoder([Block()]).to(torch.bfloat16)).compiled(DP2)
