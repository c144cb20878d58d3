"""The same model written by hand in the manner of Megatron-LM: tensor parallelism over all ranks of the default group.

Columns of the first matrix of a pair, rows of the second, and the vocabulary are split. Two functions do all of the
communication of a layer: f, before a column split, passes the input on and sums its gradient; g, after a row split,
sums the output and passes the gradient on. Both sum in place, as what they are given is nobody else's.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

from tools.bench.gpt import Sizes

SPLIT = {"qkv.weight": 0, "qkv.bias": 0, "out.weight": 1, "up.weight": 0, "up.bias": 0, "down.weight": 1,
         "tokens.weight": 0, "head.weight": 0}  # fmt: skip


def part(name: str, full: Tensor) -> Tensor:
    """This rank's part of a parameter of the whole model."""
    dim = SPLIT.get(".".join(name.split(".")[-2:]))
    return full if dim is None else full.chunk(dist.get_world_size(), dim)[dist.get_rank()]


class _F(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad


class _G(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        dist.all_reduce(x)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _CrossEntropy(Function):
    """Cross-entropy of logits [tokens, local vocabulary]: three sums over the ranks, one number per token each."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        local = logits.shape[1]
        largest = logits.amax(1)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        logits = logits - largest.unsqueeze(1)
        own = labels - dist.get_rank() * local
        elsewhere = (own < 0) | (own >= local)
        own = own.masked_fill_(elsewhere, 0).unsqueeze(1)
        chosen = logits.gather(1, own).squeeze(1).masked_fill_(elsewhere, 0)
        dist.all_reduce(chosen)
        probabilities = logits.exp_()
        total = probabilities.sum(1)
        dist.all_reduce(total)
        probabilities.div_(total.unsqueeze(1))
        ctx.save_for_backward(probabilities, own, elsewhere)
        return total.log_().sub_(chosen)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        probabilities, own, elsewhere = ctx.saved_tensors
        probabilities.scatter_add_(1, own, (elsewhere.to(grad.dtype) - 1).unsqueeze(1))
        return probabilities.mul_(grad.unsqueeze(1)), None


class ColumnLinear(nn.Module):
    """[.., n] -> [.., m / ranks]: this rank's columns."""

    def __init__(self, n: int, m: int, *, bias: bool = True) -> None:
        super().__init__()
        local = m // dist.get_world_size()
        self.weight = nn.Parameter(torch.empty(local, n))
        self.bias = nn.Parameter(torch.empty(local)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(_F.apply(x), self.weight, self.bias)


class RowLinear(nn.Module):
    """[.., n / ranks] -> [.., m]: the sum of what the ranks' rows give; the bias is added once, after it."""

    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, n // dist.get_world_size()))
        self.bias = nn.Parameter(torch.empty(m))

    def forward(self, x: Tensor) -> Tensor:
        return _G.apply(F.linear(x, self.weight)) + self.bias


class VocabEmbedding(nn.Module):
    """ids -> rows, zeros where another rank has the row, summed."""

    def __init__(self, vocab: int, width: int) -> None:
        super().__init__()
        self.local = vocab // dist.get_world_size()
        self.weight = nn.Parameter(torch.empty(self.local, width))

    def forward(self, ids: Tensor) -> Tensor:
        own = ids - dist.get_rank() * self.local
        elsewhere = (own < 0) | (own >= self.local)
        rows = F.embedding(own.masked_fill_(elsewhere, 0), self.weight)
        return _G.apply(rows.masked_fill_(elsewhere.unsqueeze(-1), 0))


class Attention(nn.Module):
    """Each rank has a part of the heads."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head = sizes.head
        self.heads = sizes.heads // dist.get_world_size()
        self.qkv = ColumnLinear(sizes.width, 3 * sizes.width)
        self.out = RowLinear(sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).view(batch, length, self.heads, 3 * self.head).transpose(1, 2).chunk(3, -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, self.heads * self.head))


class MLP(nn.Module):
    """Each rank has a part of the hidden layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.up = ColumnLinear(sizes.width, 4 * sizes.width)
        self.down = RowLinear(4 * sizes.width, sizes.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    """One layer; residual stream and norms are whole on every rank."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(sizes.width)
        self.attention = Attention(sizes)
        self.norm2 = nn.LayerNorm(sizes.width)
        self.mlp = MLP(sizes)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class MegatronGPT(nn.Module):
    """Token ids and labels [batch, length] -> the mean loss; parameters are named as in the whole model."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.tokens = VocabEmbedding(sizes.vocab, sizes.width)
        self.positions = nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(sizes.width)
        self.head = ColumnLinear(sizes.width, sizes.vocab, bias=False)

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return _CrossEntropy.apply(logits.flatten(0, 1), labels.flatten()).mean()
