"""Wrong functions of the pipeline's runtime, each made from the right one."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.runtime.gradients import GradientSums

Function = Callable[..., Any]


# Microbatches


def other_inputs(right: Function) -> Function:
    """The rank of the last stage takes each microbatch's labels from the one before."""

    def step(self: Any, inputs: Sequence[Any]) -> Any:
        last = self.stages[-1].is_last and len(inputs) > 1
        return right(self, [*inputs[-1:], *inputs[:-1]] if last else inputs)

    return step


def means_of_means(right: Function) -> Function:
    """Each microbatch's loss is the mean over its own labels; the step's is their mean."""

    def step(self: Any, inputs: Sequence[Mapping[str, Tensor]]) -> Any:
        labels = [next(x for name, x in batch.items() if name in ("targets", "labels")) for batch in inputs]
        counts = [((y > 0) & (y != -100)).sum() * len(inputs) for y in labels]
        return right(self, [{**batch, "count": count} for batch, count in zip(inputs, counts, strict=True)])

    return step


def other_value(right: Function) -> Function:
    """A stage sends what it made of microbatch 0 for microbatch 1 as well."""

    def send(self: Any, action: Any, context: Any) -> None:
        cache = self._at[action.stage_index].fwd_cache
        own = cache[action.microbatch_index]
        if action.microbatch_index == 0:
            self._first_of_all = own
        if action.microbatch_index == 1:
            cache[1] = self._first_of_all
        right(self, action, context)
        cache[action.microbatch_index] = own

    return send


def early_sums(right: type[GradientSums]) -> type[GradientSums]:
    """Gradients of a rank are summed over the mesh when its first microbatch is through, and again at the end."""

    class Early(right):
        def __init__(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__(model, *args, **kwargs)
            self._waiting = {p for p in model.parameters() if p.requires_grad}
            for parameter in list(self._waiting):
                parameter.register_post_accumulate_grad_hook(self._one_more)

        def _one_more(self, parameter: Tensor) -> None:
            if parameter in self._waiting:
                self._waiting.discard(parameter)
                if not self._waiting:
                    self.finish()

    return Early


# Gradients


def no_gradient_sent(right: Function) -> Function:
    """A stage gets zeros for the gradient of what it sent."""

    def send(self: Any, action: Any, context: Any) -> None:
        stage = self._at[action.stage_index]
        cached = stage.bwd_cache[action.microbatch_index]
        stage.bwd_cache[action.microbatch_index] = tuple(None for _ in cached)
        right(self, action, context)

    return send


def no_gradient_here(right: Function) -> Function:
    """A stage gets zeros for the gradient of what it gave the next stage of its own rank."""

    def take(self: Any, grads: Sequence[Any], mb_index: int) -> None:
        right(self, tuple(None for _ in grads), mb_index)

    return take


def mean_of_tied(right: Function) -> Function:
    """What stages share gets the mean of their gradients."""

    def shared(*args: Any) -> Any:
        found = right(*args)
        for bucket in found:
            finish = bucket.finish

            def mean(bucket: Any = bucket, finish: Function = finish) -> None:
                finish()
                with torch.no_grad():
                    for parameter in bucket.parameters.values():
                        parameter.grad.div_(bucket._axis.size)

            bucket.finish = mean
        return found

    return shared


# The loss


def own_loss(right: Function) -> Function:
    """Every rank reports what it has of the loss."""

    def everywhere(self: Any, shares: Sequence[Tensor]) -> Tensor:
        right(self, shares)
        return sum((share.detach().double() for share in shares), torch.zeros((), dtype=torch.float64))

    return everywhere


def scaled_gradients(right: Function) -> Function:
    """Gradients are divided by the number of microbatches, as torch's schedules do unless they are told not to."""

    def step(self: Any, inputs: Sequence[Any]) -> Any:
        found = right(self, inputs)
        for stage in self.stages:
            for parameter in stage.submod.parameters():
                if parameter.grad is not None:
                    parameter.grad.div_(len(inputs))
        return found

    return step


# Dropout


def same_in_microbatches(right: Function) -> Function:
    """Every microbatch drops what the first one drops."""
    return lambda self, seed, step=0, microbatch=0, stage=0: right(self, seed, step, 0, stage)


def same_in_stages(right: Function) -> Function:
    """Every stage drops what the first one drops."""
    return lambda self, seed, step=0, microbatch=0, stage=0: right(self, seed, step, microbatch, 0)
