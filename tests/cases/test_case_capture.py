"""What people write, and an export turns into something else: the program computes what was written, or there is none."""

from __future__ import annotations

from functools import cache

import pytest
import torch
import torch.nn.functional as F
from builds import layout
from parts import MLP, Attention, Block, Decoder
from torch import nn
from torch.utils.checkpoint import checkpoint
from written import DP2, TP2_SP, Written

from graphpar.errors import GraphparError


def two(**parts: type[nn.Module]) -> list[nn.Module]:
    return [Block(**{name: part() for name, part in parts.items()}) for _ in range(2)]


def heads(attention: Attention, x: torch.Tensor) -> list[torch.Tensor]:
    rows, length, _ = x.shape
    return [
        w(x).view(rows, length, attention.heads, -1).transpose(1, 2) for w in (attention.q, attention.k, attention.v)
    ]


class RowsOfLoss(Decoder):
    """A sum of losses that starts at zero and grows, divided once."""

    def loss(self, logits, labels):
        total = torch.zeros(())
        for part, wanted in zip(logits.chunk(2), labels.chunk(2)):
            total = total + F.cross_entropy(part.flatten(0, 1), wanted.flatten(), reduction="sum")
        return total / (labels != -100).sum()


class HalvesOfTokens(Decoder):
    def forward(self, input_ids, labels):
        x = self.norm(self.run(self.embed(input_ids)))
        half = x.shape[1] // 2
        total = 0
        for part, wanted in ((x[:, :half], labels[:, :half]), (x[:, half:], labels[:, half:])):
            total = total + F.cross_entropy(self.head(part).flatten(0, 1), wanted.flatten(), reduction="sum")
        return total / (labels != -100).sum()


class MaskInPlace(Attention):
    def forward(self, x):
        q, k, v = heads(self, x)
        mask = torch.zeros(x.shape[1], x.shape[1], device=x.device)
        mask.masked_fill_(torch.ones_like(mask, dtype=torch.bool).triu(1), float("-inf"))
        y = (q @ k.transpose(-2, -1) * 8**-0.5 + mask).softmax(-1) @ v
        return self.o(y.transpose(1, 2).reshape(x.shape))


class Literals(Decoder):
    def embed(self, input_ids):
        x = super().embed(input_ids) * torch.tensor(2.0)
        return x + x[:, [-1]] * torch.tensor([0.5])


class NoGradient(Decoder):
    def embed(self, input_ids):
        x = super().embed(input_ids)
        with torch.no_grad():
            scale = x.mean(-1, keepdim=True) * self.norm.weight
            with torch.enable_grad():
                x = x * self.norm.bias
        return x + scale


class StraightThrough(Decoder):
    def embed(self, input_ids):
        x = super().embed(input_ids)
        return x + (x.clamp(-0.5, 0.5) - x).detach()


class Thrifty(torch.autograd.Function):
    """SiLU that keeps one value for its backward, which is the derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return gradient * s * (1 + x * (1 - s))


class OwnBackward(Decoder):
    def embed(self, input_ids):
        return Thrifty.apply(super().embed(input_ids))


class Recomputed(Decoder):
    def run(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class Hooked(Decoder):
    def __init__(self):
        super().__init__(two())
        self.norm.register_forward_hook(lambda module, inputs, output: output * 2)


class DecayInTheLoss(Decoder):
    """A weight of one block, and one of every block, besides the blocks."""

    def forward(self, input_ids, labels):
        extra = (self.blocks[0].mlp.up.weight ** 2).sum() + sum((b.norm1.weight**2).sum() for b in self.blocks)
        return super().forward(input_ids, labels) + 0.01 * extra


class OthersWeight(Decoder):
    def embed(self, input_ids):
        return super().embed(input_ids) * self.blocks[1].norm1.weight


class Reversed(Decoder):
    def embed(self, input_ids):
        return torch.rsub(super().embed(input_ids), 1.0, alpha=2)


class Spread(Decoder):
    """Scaled by fractions, and by the spread of a whole matrix, which is not the unbiased one."""

    def embed(self, input_ids):
        x = super().embed(input_ids)
        return x * torch.arange(0.5, 1.5, 1 / 32, device=x.device) * self.pos.weight.var(unbiased=False)


class AddMM(MLP):
    def forward(self, x):
        h = F.gelu(self.up(x))
        y = torch.addmm(self.down.bias, h.flatten(0, 1), self.down.weight.t(), beta=3, alpha=0.5)
        return y.view(*x.shape[:2], -1)


class Product(MLP):
    def forward(self, x):
        return F.gelu(self.up(x)) @ self.down.weight.t() + self.down.bias


WRITTEN = {
    "a loss added up over rows": lambda: RowsOfLoss(two()),
    "a loss added up over tokens": lambda: HalvesOfTokens(two()),
    "a mask filled in place": lambda: Decoder(two(attention=MaskInPlace)),
    "literal tensors and a list of one index": lambda: Literals(two()),
    "a region without gradients": lambda: NoGradient(two()),
    "a gradient that passes straight through": lambda: StraightThrough(two()),
    "a backward of its own that is the derivative": lambda: OwnBackward(two()),
    "blocks that are computed again": lambda: Recomputed(two()),
    "a hook on a result": Hooked,
    "weights of blocks in the loss": lambda: DecayInTheLoss(two()),
    "a weight of a later block": lambda: OthersWeight(two()),
    "fractions and a whole spread": lambda: Spread(two()),
    "a scaled difference": lambda: Reversed(two()),
}


@cache
def written(name: str) -> Written:
    return Written(WRITTEN[name])


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in WRITTEN])
def test_the_program_is_what_was_written(name: str) -> None:
    for document in (TP2_SP, DP2, layout({"cp": 2}, "seq cp")):
        written(name).holds(document)


@pytest.mark.parametrize("mlp", [AddMM, Product])
def test_a_bias_is_added_once_however_it_is_written(mlp: type[nn.Module]) -> None:
    Written(lambda: Decoder(two(mlp=mlp), width=32)).holds(layout({"d": 2}, "d_model d"))


@pytest.mark.xdist_group("literal tensors and a list of one index")
def test_literals_are_no_weights() -> None:
    model = written("literal tensors and a list of one index")
    plan = model.compiled(DP2).plan
    assert {*plan["parameters"], *plan["buffers"]} == set(model.source.state_dict())


# ---- what no graph has -------------------------------------------------------------------------------------------


class ByFrequency(Decoder):
    def __init__(self):
        super().__init__(two())
        self.tok = nn.Embedding(32, 32, scale_grad_by_freq=True)


class BitsOfNumbers(Decoder):
    def embed(self, input_ids):
        both = torch.logical_and(input_ids, input_ids + 1)
        return super().embed(input_ids) * both.float().unsqueeze(-1)


@pytest.mark.parametrize("model", [lambda: ByFrequency(), lambda: BitsOfNumbers(two())])
def test_an_argument_that_is_not_kept_is_never_dropped(model) -> None:
    with pytest.raises(GraphparError) as caught:
        Written(model).compiled(DP2)
    assert {d.code for d in caught.value.diagnostics} == {"no-op-rule"}
