"""Wrong functions in place of those of the runtime. Each is made from the right one.

Ranks are threads here, and the program for one device runs the same functions: along an axis of size 1 all of these do
what is right, or what the comparison does not see.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from graphpar.runtime.axis import Axis
from graphpar.runtime.blocks import take
from graphpar.runtime.gradients import GradientSums
from graphpar.runtime.optimizer import DecayGroups
from graphpar.runtime.shards import Place

Function = Callable[..., Any]


# Backward


def slices(right: Function) -> Function:
    """This rank's part of this rank's gradient, for its part of the sum."""
    del right

    def backward(ctx: Any, grad: Tensor) -> Any:
        axis, dim, blocks = ctx.how
        return take(grad, axis.size, axis.rank, dim, blocks), None, None, None

    return backward


# Sums of gradients


def mean_of_gradients(right: Function) -> Function:
    """Sums are divided by the number of ranks, for a loss that has been divided already."""

    def finish(self: Any) -> None:
        right(self)
        with torch.no_grad():
            for parameter in self.parameters.values():
                parameter.grad.div_(self._axis.size)

    return finish


def no_wait(right: Function) -> Function:
    """The first sum is not put in place."""

    def finish(self: Any) -> None:
        first = next(iter(self.parameters.values()))
        before = first.grad.clone()
        right(self)
        first.grad.copy_(before)

    return finish


def early_sums(right: type[GradientSums]) -> type[GradientSums]:
    """Every microbatch's gradients are summed, with what the ones before have left."""

    class Early(right):
        def __init__(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
            super().__init__(model, *args, **kwargs)
            self._waiting: set[Tensor] = set()
            self._every = {p for p in model.parameters() if p.requires_grad}
            for parameter in self._every:
                parameter.register_post_accumulate_grad_hook(self._one_more)

        def _one_more(self, parameter: Tensor) -> None:
            self._waiting.add(parameter)
            if self._waiting == self._every:
                self._waiting.clear()
                if not self._watching:
                    self.finish()

    return Early


def hasty(right: Function) -> Function:
    """A bucket starts with the first of its gradients."""

    def arrived(self: Any, bucket: Any, name: str, parameter: Tensor) -> None:
        if self._watching and bucket.handle is None:
            bucket.missing.clear()
        right(self, bucket, name, parameter)

    return arrived


def only_data(right: Function) -> Function:
    """What is to be summed over several axes is summed over the first."""

    def gradient(*args: Any) -> Any:
        found = right(*args)
        return replace(found, axes=found.axes[:1])

    return gradient


# The norm


def own_norm(right: Function) -> Function:
    """The norm of what this rank holds; the sum over all ranks is taken, and forgotten."""

    def norm(model: nn.Module, mesh: Any) -> Tensor:
        right(model, mesh)
        found = [p.grad.double().square().sum() for p in model.parameters() if p.grad is not None]
        return torch.stack(found).sum().sqrt()

    return norm


def no_clipping(right: Function) -> Function:
    """Gradients of ranks stay as they are. The comparison clips in another way."""
    del right
    return lambda parameters, most, norm: None


# The optimizer


def keeps_gradients(right: Function) -> Function:
    """Gradients of one step are added to those of the step before."""

    def adamw(*args: Any) -> Any:
        optimizer = right(*args)
        optimizer.zero_grad = lambda: None
        return optimizer

    return adamw


def stale_on_one_rank(right: Function) -> Function:
    """The first parameter keeps its value on the second data rank."""

    def adamw(model: nn.Module, *args: Any) -> Any:
        optimizer = right(model, *args)
        return _freeze(optimizer, model) if _mesh(model).coordinates["dp"] == 1 else optimizer

    return adamw


def stale_everywhere(right: Function) -> Function:
    """The first parameter keeps its value."""
    return lambda model, *args: _freeze(right(model, *args), model)


def _freeze(optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    first = next(model.parameters())
    before = first.detach().clone()

    def back(*_: Any) -> None:
        with torch.no_grad():
            first.copy_(before)

    optimizer.register_step_post_hook(back)
    return optimizer


def _mesh(model: nn.Module) -> Any:
    """The mesh of a model that has an axis somewhere."""
    return next(v.mesh for module in model.modules() for v in vars(module).values() if isinstance(v, Axis))


def everything_decays(right: Function) -> Function:
    """Weight decay pulls at vectors too."""

    def of(plan: Any) -> DecayGroups:
        groups = right(plan)
        return DecayGroups((*groups.decayed, *groups.kept), ())

    return of


# Random numbers


def same_streams(right: Function) -> Function:
    """The place of a rank is left out of its seeds."""

    def seed(self: Any, names: Sequence[str]) -> int:
        del names
        return right(self, ())

    return seed


def own_streams(right: Function) -> Function:
    """All of a rank's place goes into its seeds."""

    def seed(self: Any, names: Sequence[str]) -> int:
        del names
        return right(self, tuple(self._place))

    return seed


def unscaled(right: Function) -> Function:
    """Ranks do not make up for what is dropped."""

    def dropout(x: Tensor, p: float, training: bool, stream: Any, cut: Any = ()) -> Tensor:
        y = right(x, p, training, stream, cut)
        return y * (1 - p) if training and cut and cut[0][1].size > 1 else y

    return dropout


# Loading


def swapped(shape: tuple[int, ...]) -> Callable[[Function], Function]:
    """Tensors of this shape are cut for the other rank of tp."""

    def make(right: Function) -> Function:
        def cut(full: Tensor, dims: Any, place: Place) -> Tensor:
            if full.shape == shape:
                place = replace(place, at={a: place.sizes[a] - 1 - n if a == "tp" else n for a, n in place.at.items()})
            return right(full, dims, place)

        return cut

    return make


def shifted(shape: tuple[int, ...]) -> Callable[[Function], Function]:
    """Tensors of this shape are cut one row too far, where there is more than one rank."""

    def make(right: Function) -> Function:
        def cut(full: Tensor, dims: Any, place: Place) -> Tensor:
            several = any(size > 1 for size in place.sizes.values())
            return right(full.roll(-1, 0) if several and full.shape == shape else full, dims, place)

        return cut

    return make


def other_rows(right: Function) -> Function:
    """Each data rank has the rows of the other."""
    return lambda x, axes, dim, place: right(
        x, axes, dim, replace(place, at={a: place.sizes[a] - 1 - n for a, n in place.at.items()})
    )


def first_rows(right: Function) -> Function:
    """Every data rank has the rows of the first."""
    return lambda x, axes, dim, place: right(x, axes, dim, replace(place, at=dict.fromkeys(place.at, 0)))


def padded_with_ones(right: Function) -> Function:
    """Padding, where there is any, is ones."""

    def pad(full: Tensor, dims: Any) -> Tensor:
        padded = right(full, dims)
        if padded.shape != full.shape:
            padded = padded.clone()
            padded[full.shape[0] :] = 1
        return padded

    return pad


# The vocabulary


def one_row_more(right: Function) -> Function:
    """Ids of the next rank's first row are this rank's as well, and read its last."""
    del right

    def elsewhere(own: Tensor, local: int, *, first: bool, last: bool) -> Tensor:
        del last
        if first:
            own.clamp_(max=local - 1) if not (own > local).any() else own.masked_fill_(own == local, local - 1)
            return own >= local
        return own < 0

    return elsewhere


def first_columns(right: Function) -> Function:
    """The last column of each part is left out of the sums of exponentials."""

    def upcast(z: Tensor) -> Tensor:
        z = right(z).clone()
        z[:, -1] = -torch.inf
        return z

    return upcast
