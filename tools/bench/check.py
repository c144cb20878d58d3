"""Before anything is timed: do all programs compute the same?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor, nn
from torch.testing import assert_close

from tools.bench import dtensor
from tools.bench.contenders import Batch, Contender

RELATIVE = 2e-4  # of the largest element of a gradient; float32 sums in another order


@dataclass(frozen=True)
class Right:
    """What a step should give."""

    loss: Tensor
    gradients: Mapping[str, Tensor]  # whole, on every rank

    @classmethod
    def of(cls, model: nn.Module, batch: Batch) -> "Right":
        """What the model gives on one device."""
        loss = model(batch.ids, batch.labels)
        loss.backward()
        return cls(loss.detach(), _gradients(dict(model.named_parameters())))

    @classmethod
    def by(cls, contender: Contender) -> "Right":
        """What a program gives that has all of every gradient."""
        return cls(_loss(contender), _gradients(contender.parameters))


def check(contenders: Sequence[Contender], right: Right) -> None:
    """Compare loss and every gradient.

    Raises AssertionError with the program and the parameter that differ.
    """
    for contender in contenders:
        loss = _loss(contender)
        assert_close(loss, right.loss, rtol=1e-5, atol=0, msg=lambda m, c=contender: f"{c.name}, loss: {m}")
        assert _held_somewhere(contender) == set(right.gradients), contender.name
        for name, gradient in _gradients(contender.parameters).items():
            _check(f"{contender.name}, {name}", gradient, contender.part(name, right.gradients[name]))


def _loss(contender: Contender) -> Tensor:
    """The loss of one step, over all ranks."""
    loss = dtensor.whole(contender.step())
    dist.all_reduce(loss)
    return loss.div_(dist.get_world_size())


def _gradients(parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    missing = [name for name, parameter in parameters.items() if parameter.grad is None]
    assert not missing, f"no gradient of {', '.join(missing)}"
    return {name: dtensor.whole(p.grad).clone() for name, p in parameters.items() if p.grad is not None}


def _held_somewhere(contender: Contender) -> set[str]:
    """The parameters of all ranks: in a pipeline each has a part of them."""
    names: list[list[str]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(names, list(contender.parameters))
    return {name for held in names for name in held}


def _check(what: str, gradient: Tensor, right: Tensor) -> None:
    largest = right.abs().max().item()
    assert_close(gradient, right, rtol=0, atol=RELATIVE * largest, msg=lambda m: f"{what}: {m}")
