"""What is timed: one step, forward and backward, of the same model on the same batch by different programs.

A step of tensor parallelism gives every rank its parts of the gradients, a step of data parallelism the sum over all
ranks. Each step drops the gradients of the one before, as an optimizer's `zero_grad` does.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from graphpar.runtime import GradientSums, Mesh
from graphpar.runtime.buckets import BUCKET_BYTES
from graphpar.runtime.shards import cut
from graphpar.runtime.whole import here
from tools.bench import dtensor, megatron
from tools.bench.builds import build_folder, read_build
from tools.bench.gpt import GPT, Sizes

SEED = 1


class Tokens(Protocol):
    """What a batch depends on."""

    @property
    def vocab(self) -> int:
        """How many ids there are."""
        ...

    @property
    def length(self) -> int:
        """Of a sequence."""
        ...


@dataclass(frozen=True)
class Batch:
    """Token ids and labels, [batch, length] each."""

    ids: Tensor
    labels: Tensor

    @classmethod
    def random(cls, sizes: Tokens, rows: int) -> "Batch":
        """The same on every rank."""
        generator = torch.Generator().manual_seed(SEED)
        ids, labels = torch.randint(sizes.vocab, (2, rows, sizes.length), generator=generator)
        return cls(ids, labels)

    def mine(self) -> "Batch":
        """This rank's rows."""
        ranks, rank = dist.get_world_size(), dist.get_rank()
        return Batch(self.ids.chunk(ranks)[rank], self.labels.chunk(ranks)[rank])


@dataclass(frozen=True, eq=False)
class Contender:
    """A program that is measured."""

    name: str
    parameters: Mapping[str, nn.Parameter]  # by the names of the model of one device
    step: Callable[[], Tensor]  # returns the loss; in data parallelism its mean over the ranks is the loss
    part: Callable[[str, Tensor], Tensor]  # what this rank should have of a whole gradient


def reference(sizes: Sizes) -> GPT:
    """The model on one device, with the values that every contender starts from."""
    torch.manual_seed(SEED)
    return GPT(sizes)


def generated_tensor_parallel(root: Path, sizes: Sizes, batch: Batch, mesh: Mesh) -> Contender:
    """What graphpar wrote."""
    model, plan = read_build(build_folder(root, "tp", sizes.width), mesh, SEED)
    count = model.count(ids=batch.ids, labels=batch.labels)

    def loss() -> Tensor:
        return model(ids=batch.ids, labels=batch.labels, count=count)

    def part(name: str, full: Tensor) -> Tensor:
        return cut(full, plan.parameters[name].dims, here(mesh))

    return _plain("graphpar", model, loss, part)


def by_hand(sizes: Sizes, batch: Batch) -> Contender:
    """What a careful engineer wrote."""
    model = megatron.MegatronGPT(sizes)
    with torch.no_grad():
        for name, full in reference(sizes).named_parameters():
            model.get_parameter(name).copy_(megatron.part(name, full))
    return _plain("by hand", model, lambda: model(batch.ids, batch.labels), megatron.part)


def by_dtensor(sizes: Sizes, batch: Batch) -> Contender:
    """What torch makes of the module on one device."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = dtensor.parallelize(reference(sizes), mesh)
    return _plain("DTensor", model, lambda: model(batch.ids, batch.labels), whole, loss_parallel)


def _plain(
    name: str,
    model: nn.Module,
    loss: Callable[[], Tensor],
    part: Callable[[str, Tensor], Tensor],
    context: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> Contender:
    parameters = dict(model.named_parameters())

    def step() -> Tensor:
        drop(parameters)
        with context():
            value = loss()
            value.backward()
        return value.detach()

    return Contender(name, parameters, step, part)


def generated_data_parallel(root: Path, sizes: Sizes, batch: Batch, mesh: Mesh) -> Contender:
    """What graphpar wrote, with the sums of gradients, and of the number of labels, as in its train.py."""
    model, _ = read_build(build_folder(root, "dp", sizes.width), mesh, SEED)
    parameters = dict(model.named_parameters())
    sums = GradientSums(model, mesh)
    mine = batch.mine()
    data = mesh["dp"]

    def step() -> Tensor:
        drop(parameters)
        count = data.all_reduce(model.count(ids=mine.ids, labels=mine.labels))
        with sums.last_microbatch():
            loss = model(ids=mine.ids, labels=mine.labels, count=count)
            loss.backward()
        sums.finish()
        return loss.detach() * data.size  # as if it were a mean over this rank's rows

    return Contender("graphpar", parameters, step, whole)


def by_ddp(sizes: Sizes, batch: Batch) -> Contender:
    """What torch makes of the module on one device, at its quickest: gradients are views of the buckets."""
    model = reference(sizes)
    parallel = DistributedDataParallel(model, bucket_cap_mb=BUCKET_BYTES >> 20, gradient_as_bucket_view=True)
    parameters = dict(model.named_parameters())
    mine = batch.mine()

    def step() -> Tensor:
        drop(parameters)
        loss = parallel(mine.ids, mine.labels)
        loss.backward()
        return loss.detach()

    return Contender("DDP", parameters, step, whole)


def whole(name: str, full: Tensor) -> Tensor:
    """The part of a rank that has all."""
    del name
    return full


def drop(parameters: Mapping[str, nn.Parameter]) -> None:
    """Forget the gradients of the step before."""
    for parameter in parameters.values():
        parameter.grad = None
