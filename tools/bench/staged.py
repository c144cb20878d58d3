"""The same model cut into stages by hand, one on each rank, and run by torch's own 1F1B."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from tools.bench.contenders import Batch, Contender, reference
from tools.bench.gpt import GPT, Sizes


class StageOfGPT(nn.Module):
    """Some of the blocks; the first stage has the embeddings as well, the last one the norm and the head."""

    def __init__(self, model: GPT, blocks: range, first: bool, last: bool) -> None:
        super().__init__()
        self.tokens = model.tokens if first else None
        self.positions = model.positions if first else None
        self.blocks = nn.ModuleDict({str(index): model.blocks[index] for index in blocks})
        self.norm = model.norm if last else None
        self.head = model.head if last else None

    def forward(self, x: Tensor) -> Tensor:
        if self.tokens is not None and self.positions is not None:
            x = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks.values():
            x = block(x)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def staged(sizes: Sizes, batch: Batch, cut: list[range], microbatches: int) -> Contender:
    """`cut`: the blocks of each rank. The loss goes from the last rank to all."""
    rank, last = dist.get_rank(), len(cut) - 1
    module = StageOfGPT(reference(sizes), cut[rank], rank == 0, rank == last)
    parameters = dict(module.named_parameters())

    def share(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()) / microbatches

    stage = PipelineStage(module, rank, len(cut), batch.ids.device)
    schedule = Schedule1F1B(stage, microbatches, loss_fn=share, scale_grads=False)

    def step() -> Tensor:
        for parameter in parameters.values():
            parameter.grad = None
        losses: list[Tensor] = []
        inputs = (batch.ids,) if rank == 0 else ()
        target = batch.labels if rank == last else None
        schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
        loss = torch.stack(losses).detach().sum() if losses else torch.zeros((), device=batch.ids.device)
        dist.broadcast(loss, last)
        return loss

    return Contender("by hand", parameters, step, lambda _, full: full)
