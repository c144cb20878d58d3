"""Run by test_mesh.py under torchrun: the same program on real and on simulated ranks."""

import sys
from pathlib import Path

import torch
from dense_experts import by_tokens, layer
from torch import nn

from graphpar.runtime import (
    GradientSums,
    Mesh,
    Parameters,
    all_gather,
    all_reduce,
    all_reduce_count,
    all_reduce_max,
    all_to_all,
    clip,
    dropout,
    grad_all_reduce,
    reduce_scatter,
    simulate,
    slice_,
    vocab_cross_entropy,
)

SIZES = {"dp": 1, "cp": 1, "tp": 2}


def every_collective(mesh):
    """Small and large operands: Gloo spells them differently."""
    tp = mesh["dp", "tp"]
    mesh.seed(3)
    results = []
    for rows in (4, 40_000):
        x = torch.randn(rows, 6, generator=torch.Generator().manual_seed(mesh.rank), requires_grad=True)
        y = all_gather(grad_all_reduce(x, tp), tp, 1, blocks=2)
        y = reduce_scatter(y.sin(), tp, 0) + slice_(torch.ones(rows, 12), tp, 0)
        y = dropout(all_to_all(y, tp, 1, 0), 0.5, True, mesh.random("tp"))
        loss = all_reduce(y.square().sum(), tp)
        loss.backward()
        results += [y.detach(), loss.detach(), x.grad]
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(mesh.rank), requires_grad=True)
    loss = vocab_cross_entropy(logits, torch.tensor([0, 6, 3, -100, 5]), tp, vocab=7)
    loss.backward()
    axis = mesh["tp"]
    send, receive = ([1, 2], [1, 0]) if mesh.rank == 0 else ([0, 1], [2, 1])
    results += [
        loss.detach(),
        logits.grad,
        all_reduce_max(torch.tensor([mesh.rank, -mesh.rank]), axis),
        all_reduce_count(torch.tensor(mesh.rank + 1), axis),
        axis.all_gather(torch.tensor([mesh.rank == 0]), 0),
        axis.all_to_all_rows(torch.arange(sum(send)), send, receive),
        axis.all_gather(torch.empty(0, 3), 0),
        axis.broadcast(torch.tensor([mesh.rank + 5]), source=1),
        all_reduce(torch.ones(3, dtype=torch.bfloat16), axis),
    ]
    axis.barrier()
    return results + experts(axis) + step(mesh)


def experts(axis):
    """Rows for both ranks, rows for rank 1 alone, tokens on rank 0 alone, and none at all."""
    results = []
    for chosen, tokens in [
        ([[0, 3], [2, 1], [3, 2]], [1, 2]),
        ([[2, 3]] * 3, [2, 1]),
        ([[0, 1]], [1, 0]),
        ([], [0, 0]),
    ]:
        whole = layer(torch.tensor(chosen, dtype=torch.int64).view(-1, 2), 4)
        results += by_tokens(whole, axis, tokens)
    narrow = torch.ones(2, 3, dtype=torch.bfloat16) * axis.rank
    send, receive = ([2, 0], [2, 0]) if axis.rank == 0 else ([0, 2], [0, 2])
    return [*results, axis.all_to_all_rows(narrow, send, receive)]


def step(mesh):
    model = nn.Module()
    model.a = Parameters(weight=mesh.parameter(300, 300, grad_sum="tp"), bias=mesh.parameter(3, sharded="tp"))
    sums = GradientSums(model, mesh, bucket_bytes=1000)
    nn.init.constant_(model.a.weight, 0.1)
    nn.init.constant_(model.a.bias, 0.1)
    with sums.last_microbatch():
        (model.a.weight.square().sum() * (mesh.rank + 1) + model.a.bias.sum()).backward()
    sums.finish()
    norm = clip(model, mesh, 1.0)
    return [norm, model.a.weight.grad, model.a.bias.grad]


def compare(mesh):
    simulated = simulate(SIZES, every_collective)[mesh.rank]
    for i, (real, other) in enumerate(zip(every_collective(mesh), simulated, strict=True)):
        torch.testing.assert_close(real, other, msg=lambda text, i=i: f"result {i}: {text}")


def fail(mesh):
    if mesh.rank == 1:
        raise ValueError("rank 1 gives up")
    all_reduce(torch.ones(2), mesh["tp"])


if __name__ == "__main__":
    mesh = Mesh.from_env(SIZES, timeout=20)
    {"compare": compare, "fail": fail}[sys.argv[1]](mesh)
    Path(sys.argv[2], str(mesh.rank)).touch()
    mesh.close()
