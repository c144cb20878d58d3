"""Before anything is timed: do all programs compute the same?"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.testing import assert_close

from tools.bench import dtensor
from tools.bench.contenders import Batch, Contender, reference
from tools.bench.gpt import Sizes

RELATIVE = 2e-4  # of the largest element of a gradient; float32 sums in another order


def check(contenders: Sequence[Contender], sizes: Sizes, batch: Batch) -> None:
    """Compare loss and every gradient with those of the model on one device.

    Raises AssertionError with the program and the parameter that differ.
    """
    model = reference(sizes)
    loss = model(batch.ids, batch.labels)
    loss.backward()
    for contender in contenders:
        value = dtensor.whole(contender.step())
        dist.all_reduce(value)
        value /= dist.get_world_size()
        assert_close(value, loss.detach(), rtol=1e-5, atol=0, msg=lambda m, c=contender: f"{c.name}, loss: {m}")
        assert _held_somewhere(contender) == {name for name, _ in model.named_parameters()}, contender.name
        for name, own in contender.parameters.items():
            parameter, gradient = model.get_parameter(name), own.grad
            assert parameter.grad is not None and gradient is not None, f"{contender.name}, {name}: no gradient"
            _check(f"{contender.name}, {name}", dtensor.whole(gradient), contender.part(name, parameter.grad))


def _held_somewhere(contender: Contender) -> set[str]:
    """The parameters of all ranks: in a pipeline each has a part of them."""
    names: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(names, list(contender.parameters))
    return {name for held in names for name in held}


def _check(what: str, gradient: torch.Tensor, right: torch.Tensor) -> None:
    largest = right.abs().max().item()
    assert_close(gradient, right, rtol=0, atol=RELATIVE * largest, msg=lambda m: f"{what}: {m}")
