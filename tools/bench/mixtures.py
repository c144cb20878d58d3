"""Programs that train the mixture of experts.

A step is forward, backward, the sums of gradients and AdamW, as each program would train. The rate is 0: AdamW does all
of its work, but the router's choices stay as they were, and with them what every program has to do.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from graphpar.runtime import GradientSums, Mesh
from graphpar.runtime.shards import cut
from graphpar.runtime.whole import here
from tools.bench import mixture_by_hand
from tools.bench.builds import build_folder, read_build
from tools.bench.contenders import SEED, Batch, Contender, drop
from tools.bench.moe import Mixture, MixtureSizes

CLASS = Mixture.__name__


@dataclass(frozen=True, eq=False)
class Trained:
    """A program, and the part of its step that is not the same for every model."""

    contender: Contender
    passes: Callable[[], Tensor]  # forward and backward, and no more

    @property
    def name(self) -> str:
        """What it is called."""
        return self.contender.name


@dataclass(frozen=True)
class Parts:
    """Of a step."""

    loss: Callable[[], Tensor]  # this rank's summand
    finish: Callable[[], None]  # sums the gradients
    begin: Callable[[], None] = lambda: None
    context: Callable[[], AbstractContextManager[object]] = nullcontext  # of forward and backward


def specs(ranks: int) -> dict[str, str]:
    """Experts on different ranks, and data parallelism without them."""
    return {
        "ep": f"version: 1\nmesh: {{ep: {ranks}}}\nlayout:\n  - batch: ep\nmoe: {{experts: ep}}\n",
        "dp": f"version: 1\nmesh: {{dp: {ranks}}}\nlayout:\n  - batch: dp\n",
    }


def reference(sizes: MixtureSizes) -> Mixture:
    """The model on one device, with the values that every program starts from."""
    torch.manual_seed(SEED)
    return Mixture(sizes)


def generated(name: str, root: Path, layout: str, sizes: MixtureSizes, batch: Batch, mesh: Mesh) -> Trained:
    """What graphpar wrote for a spec, trained as in its train.py."""
    model, plan = read_build(build_folder(root, layout, sizes.width), mesh, SEED, CLASS)
    sums, data, mine = GradientSums(model, mesh), mesh[layout], batch.mine()
    count = torch.empty((), dtype=torch.int64)

    def begin() -> None:
        nonlocal count
        count = data.all_reduce(model.count(ids=mine.ids, labels=mine.labels))

    def loss() -> Tensor:
        return model(ids=mine.ids, labels=mine.labels, count=count)

    def part(name: str, full: Tensor) -> Tensor:
        return cut(full, plan.parameters[name].dims, here(mesh))

    return _trained(name, model, part, Parts(loss, sums.finish, begin, sums.last_microbatch))


def by_hand(sizes: MixtureSizes, batch: Batch) -> Trained:
    """What a careful engineer wrote."""
    model, mine = mixture_by_hand.ParallelMixture(sizes), batch.mine()
    with torch.no_grad():
        for name, full in reference(sizes).named_parameters():
            model.get_parameter(name).copy_(mixture_by_hand.part(name, full))
    copied = [p for name, p in model.named_parameters() if name not in mixture_by_hand.EXPERTS]

    def finish() -> None:
        mixture_by_hand.sum_gradients(copied)

    return _trained("by hand", model, mixture_by_hand.part, Parts(lambda: model(mine.ids, mine.labels), finish))


def _trained(name: str, model: nn.Module, part: Callable[[str, Tensor], Tensor], of: Parts) -> Trained:
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(parameters.values(), lr=0.0, fused=True)
    ranks = dist.get_world_size()

    def passes() -> Tensor:
        drop(parameters)
        value = of.loss()
        value.backward()
        return value.detach() * ranks

    def step() -> Tensor:
        of.begin()
        with of.context():
            value = passes()
        of.finish()
        optimizer.step()
        return value

    return Trained(Contender(name, parameters, step, part), passes)
