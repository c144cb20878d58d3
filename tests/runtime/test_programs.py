"""A hand-written language model on dp x tp, with and without sequence parallelism, equals the whole one."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from graphpar.runtime import (
    GradientSums,
    Parameters,
    all_gather,
    all_gather_same,
    all_reduce,
    grad_all_reduce,
    gradient_norm,
    reduce_scatter,
    simulate,
    vocab_cross_entropy,
    vocab_embedding,
)

VOCAB, WIDTH, HIDDEN, BATCH, SEQ = 10, 6, 8, 4, 4
SHAPES = {
    "wte.weight": (VOCAB, WIDTH),
    "norm.weight": (WIDTH,),
    "norm.bias": (WIDTH,),
    "up.weight": (HIDDEN, WIDTH),
    "down.weight": (WIDTH, HIDDEN),
    "down.bias": (WIDTH,),
}
CUT = {"wte.weight": 0, "up.weight": 0, "down.weight": 1}  # over tp
GENERATOR = torch.Generator().manual_seed(0)
VALUES = {name: torch.randn(shape, generator=GENERATOR, dtype=torch.float64) for name, shape in SHAPES.items()}
IDS = torch.randint(0, VOCAB, (BATCH, SEQ), generator=GENERATOR)
LABELS = torch.randint(0, VOCAB, (BATCH, SEQ), generator=GENERATOR)
LABELS[0, 1:] = LABELS[3, :2] = -100
COUNT = (LABELS != -100).sum()


def whole():
    p = {name: value.clone().requires_grad_() for name, value in VALUES.items()}
    x = F.embedding(IDS, p["wte.weight"])
    h = F.layer_norm(x, (WIDTH,), p["norm.weight"], p["norm.bias"])
    x = x + F.linear(F.gelu(F.linear(h, p["up.weight"])), p["down.weight"], p["down.bias"])
    loss = F.cross_entropy(F.linear(x, p["wte.weight"]).flatten(0, 1), LABELS.flatten(), reduction="sum") / COUNT
    loss.backward()
    return loss.detach(), {name: t.grad for name, t in p.items()}


class Model(nn.Module):
    def __init__(self, mesh, gather=all_gather):
        super().__init__()
        self.tp = mesh["tp"]
        self.gather = gather
        for holder in ("wte", "norm", "up", "down"):
            own = {name.split(".")[1]: name for name in SHAPES if name.startswith(holder)}
            setattr(self, holder, Parameters(**{short: self.part(mesh, name) for short, name in own.items()}))

    def part(self, mesh, name):
        value = VALUES[name].chunk(self.tp.size, CUT[name])[self.tp.rank] if name in CUT else VALUES[name]
        sharded = "tp" if name in CUT else ""
        parameter = mesh.parameter(*value.shape, grad_sum="dp", sharded=sharded, dtype=torch.float64)
        parameter.data.copy_(value)
        return parameter


class Plain(Model):
    def forward(self, ids, labels):  # batch@dp seq
        x = all_reduce(vocab_embedding(ids, self.wte.weight, self.tp), self.tp)
        h = F.layer_norm(x, (WIDTH,), self.norm.weight, self.norm.bias)
        h = F.gelu(F.linear(grad_all_reduce(h, self.tp), self.up.weight))
        x = x + all_reduce(F.linear(h, self.down.weight), self.tp) + self.down.bias
        logits = F.linear(grad_all_reduce(x, self.tp), self.wte.weight)
        return vocab_cross_entropy(logits, labels, self.tp, vocab=VOCAB) / COUNT


class SequenceParallel(Model):
    def forward(self, ids, labels):  # batch@dp seq
        x = reduce_scatter(vocab_embedding(ids, self.wte.weight, self.tp), self.tp, 1)
        weight, bias, down = (grad_all_reduce(p, self.tp) for p in (self.norm.weight, self.norm.bias, self.down.bias))
        h = self.gather(F.layer_norm(x, (WIDTH,), weight, bias), self.tp, 1)
        h = F.gelu(F.linear(h, self.up.weight))
        x = x + reduce_scatter(F.linear(h, self.down.weight), self.tp, 1) + down
        logits = F.linear(self.gather(x, self.tp, 1), self.wte.weight)
        return vocab_cross_entropy(logits, labels, self.tp, vocab=VOCAB) / COUNT


def run(mesh, make):
    dp, tp = mesh["dp"], mesh["tp"]
    model = make(mesh)
    sums = GradientSums(model, mesh)
    loss = model(IDS.chunk(dp.size)[dp.rank], LABELS.chunk(dp.size)[dp.rank])
    with sums.last_microbatch():
        loss.backward()
    sums.finish()
    gradients = {}
    for name, p in model.named_parameters():
        gradients[name] = tp.all_gather(p.grad, CUT[name]) if name in CUT else p.grad
    return dp.all_reduce(loss.detach()), gradients, gradient_norm(model, mesh)


def differences(sizes, make):
    loss, gradients = whole()
    norm = torch.stack([g.norm() for g in gradients.values()]).norm()
    results = simulate(sizes, lambda mesh: run(mesh, make))
    assert all(torch.equal(results[0][1][name], result[1][name]) for result in results for name in SHAPES)
    got = results[-1]
    pairs = [(got[0], loss), (got[2], norm), *((got[1][name], gradients[name]) for name in SHAPES)]
    return max((a - b).abs().max().item() for a, b in pairs)


@pytest.mark.parametrize("dp", [1, 2])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("make", [Plain, SequenceParallel])
def test_loss_gradients_and_norm_are_those_of_the_whole_model(dp, tp, make):
    assert differences({"dp": dp, "tp": tp}, make) < 1e-12


def test_a_gather_with_the_wrong_backward_is_seen():
    assert differences({"dp": 1, "tp": 2}, lambda mesh: SequenceParallel(mesh, all_gather_same)) > 1e-3
