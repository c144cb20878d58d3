"""The same mixture with its experts on different ranks, as a careful engineer writes it with torch.distributed.

Each rank has its own tokens and an equal part of the experts. A row is one choice of one token. Rows go to the ranks of
their experts, and back, in one all-to-all each.
"""

# A Function declares its backward for any number of gradients; ours have one result, and name its gradient.
# pyright: reportIncompatibleMethodOverride=false

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from tools.bench.moe import MixtureSizes

EXPERTS = ("moe.gate_up", "moe.down")


class _AllToAll(Function):
    """Rows to other ranks; their gradients go the way back."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
        ctx.sizes = send, receive
        return _exchanged(rows, send, receive)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        send, receive = ctx.sizes
        return _exchanged(grad.contiguous(), receive, send), None, None


def _exchanged(rows: Tensor, send: list[int], receive: list[int]) -> Tensor:
    out = rows.new_empty(sum(receive), rows.shape[1])
    dist.all_to_all_single(out, rows, receive, send)
    return out


class ParallelMoE(nn.Module):
    """Top k of the experts, a part of which is here."""

    def __init__(self, sizes: MixtureSizes) -> None:
        super().__init__()
        self.experts, self.topk, self.ranks = sizes.experts, sizes.topk, dist.get_world_size()
        self.own = sizes.experts // self.ranks
        self.router = nn.Linear(sizes.width, sizes.experts, bias=False)
        self.gate_up = nn.Parameter(torch.empty(self.own, sizes.width, 2 * sizes.hidden))
        self.down = nn.Parameter(torch.empty(self.own, sizes.hidden, sizes.width))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.topk, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)

        expert = chosen.flatten()
        order = expert.argsort(stable=True)
        counts = expert.bincount(minlength=self.experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        send = counts.view(self.ranks, self.own).sum(1).tolist()
        received = theirs.view(self.ranks, self.own).tolist()
        receive = [sum(of_rank) for of_rank in received]

        rows = _AllToAll.apply(tokens.index_select(0, order // self.topk), send, receive)
        rows = _AllToAll.apply(self.compute(rows, received), receive, send)
        place = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
        rows = rows.index_select(0, place).view(-1, self.topk, x.shape[-1])
        return (rows * weights.unsqueeze(-1)).sum(1).view_as(x)

    def compute(self, rows: Tensor, received: list[list[int]]) -> Tensor:
        """The rows of each rank lie by expert: gather each expert's, and put the results where the rows were."""
        blocks = rows.split([count for of_rank in received for count in of_rank])
        results: list[tuple[Tensor, ...]] = []
        # Not `self.down[expert]`, whose backward fills a gradient of all experts for each of them.
        for expert, (gate_up, down) in enumerate(zip(self.gate_up.unbind(), self.down.unbind(), strict=True)):
            gate, up = (torch.cat(blocks[expert :: self.own]) @ gate_up).chunk(2, -1)
            result = (F.silu(gate) * up) @ down
            results.append(result.split([of_rank[expert] for of_rank in received]))
        return torch.cat([block for of_rank in zip(*results, strict=True) for block in of_rank])


class ParallelMixture(nn.Module):
    """Ids and labels of this rank -> its summand of the mean loss; parameters are named as in the whole model."""

    def __init__(self, sizes: MixtureSizes) -> None:
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocab, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.moe = ParallelMoE(sizes)
        self.head = nn.Linear(sizes.width, sizes.vocab, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        logits = self.head(x + self.moe(x))
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) / dist.get_world_size()


def part(name: str, full: Tensor) -> Tensor:
    """What this rank has of a parameter of the whole model, or of its gradient."""
    return full.chunk(dist.get_world_size())[dist.get_rank()] if name in EXPERTS else full


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients over all ranks, in one bucket."""
    held = [p for p in parameters if p.grad is not None]
    bucket = torch.cat([p.grad.flatten() for p in held if p.grad is not None])
    dist.all_reduce(bucket)
    for parameter, summed in zip(held, bucket.split([p.numel() for p in held]), strict=True):
        parameter.grad = summed.view_as(parameter)
