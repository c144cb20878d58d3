"""Sums of gradients over the mesh, while backward still runs."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeGuard

import torch
from torch import Tensor, nn

from graphpar.runtime.axis import Axis
from graphpar.runtime.buckets import BUCKET_BYTES, Gradient, buckets
from graphpar.runtime.comm import Handle
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.parameters import spread
from graphpar.runtime.stages import Stages


class GradientSums:
    """Sums each gradient over the axes of its parameter's `grad_sum`, once per step.

        sums = GradientSums(model, mesh)
        for batch in microbatches[:-1]:
            loss(batch).backward()
        with sums.last_microbatch():
            loss(microbatches[-1]).backward()
        sums.finish()

    Buckets start in one fixed order, whichever gradient is ready first, and a gradient that is missing counts as zeros:
    what is communicated depends on the model alone. Sums are taken in float32 at least.

    Of a pipeline, `finish` sums the gradients of what several ranks' stages share over these ranks as well. That comes
    last, so that they all have the same bits, whatever else they hold.

    From the first step on, gradients lie in memory that later steps use again: copy one that is to be kept.
    """

    def __init__(self, model: nn.Module, mesh: Mesh, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._mesh = mesh
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        gradients = [_gradient(name, p, mesh) for name, p in parameters.items()]
        self._buckets = [
            _Bucket(mesh.axis(group[0].axes), {gradient.name: parameters[gradient.name] for gradient in group})
            for group in buckets(gradients, bucket_bytes)
        ]
        self._shared = _shared(model, parameters, mesh) if isinstance(model, Stages) else []
        self._started = 0  # buckets
        self._watching = False
        for bucket in self._buckets[:-1]:  # the last is full when backward is over, which `finish` knows by itself
            for name, parameter in bucket.parameters.items():
                parameter.register_post_accumulate_grad_hook(partial(self._arrived, bucket, name))

    @contextmanager
    def last_microbatch(self) -> Generator[None]:
        """Start each bucket as soon as the backward inside this block has filled it."""
        self._watching = True
        try:
            yield
        finally:
            self._watching = False

    def finish(self) -> None:
        """Start what has not started, and return when every gradient is its sum."""
        with self._mesh.during("step"):
            while self._started < len(self._buckets):
                self._start_next()
        for bucket in self._buckets:
            bucket.finish()
        self._started = 0
        for bucket in self._shared:
            with self._mesh.during("step"):
                bucket.start()
            bucket.finish()

    def _arrived(self, bucket: "_Bucket", name: str, parameter: Tensor) -> None:
        del parameter
        if bucket.handle is not None:
            raise RuntimeError(
                f"a gradient of {name} came after its sum had started: more than one backward in the block"
            )
        if not self._watching:
            return
        bucket.missing.discard(name)
        if bucket.missing:
            return
        with self._mesh.during("step"):
            while self._started < len(self._buckets) and not self._buckets[self._started].missing:
                self._start_next()

    def _start_next(self) -> None:
        self._buckets[self._started].start()
        self._started += 1


class _Bucket:
    """Gradients that are summed in one all-reduce: side by side, or where it is if there is only one."""

    def __init__(self, axis: Axis, parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.missing = set(parameters)
        self.handle: Handle | None = None
        self._axis = axis
        self._narrow = {name: p.dtype for name, p in parameters.items() if p.dtype != sum_dtype(p.dtype)}
        self._flat: Tensor | None = None
        self._places: dict[str, Tensor] = {}  # parts of it

    @torch.no_grad()
    def start(self) -> None:
        """Start the sum; a gradient that is missing counts as zeros."""
        grads = [parameter.grad for parameter in self.parameters.values()]
        if len(grads) == 1 and _can_be_summed_itself(grads[0]):
            self._flat, self._places = grads[0].view(-1), {}
        else:
            self._gather(grads)
        assert self._flat is not None
        self.handle = self._axis.start_all_reduce(self._flat)

    def _gather(self, grads: Sequence[Tensor | None]) -> None:
        """Copy gradients to their places, in one call as there may be many; from then on they are these places."""
        if not self._places:
            self._make_places()
        places = list(self._places.values())
        new = [(place, grad) for place, grad in zip(places, grads, strict=True) if grad is not place]
        found = [(place, grad) for place, grad in new if grad is not None]
        if found:
            torch._foreach_copy_([place for place, _ in found], [grad for _, grad in found])  # pyright: ignore[reportPrivateUsage]
        for place, grad in new:
            if grad is None:
                place.zero_()
        if not self._narrow:
            for parameter, place in zip(self.parameters.values(), places, strict=True):
                parameter.grad = place

    def finish(self) -> None:
        """Return when the gradients are their sums."""
        assert self.handle is not None
        self.handle.wait()
        for name, dtype in self._narrow.items():
            self.parameters[name].grad = self._places[name].to(dtype)
        if self._narrow or not self._places:
            self._flat, self._places = None, {}
        self.handle, self.missing = None, set(self.parameters)

    def _make_places(self) -> None:
        parameters = list(self.parameters.values())
        dtype, sizes = sum_dtype(parameters[0].dtype), [parameter.numel() for parameter in parameters]
        self._flat = torch.empty(sum(sizes), dtype=dtype, device=parameters[0].device)
        for (name, parameter), part in zip(self.parameters.items(), self._flat.split(sizes), strict=True):
            self._places[name] = part.view(parameter.shape)


def _shared(model: Stages, parameters: dict[str, nn.Parameter], mesh: Mesh) -> list[_Bucket]:
    """What this rank shares with others, by who they are. Every rank comes here: process groups are made."""
    by_owners: dict[tuple[int, ...], list[str]] = {}
    for name, owners in model.shared.items():
        by_owners.setdefault(owners, []).append(name)
    found: list[_Bucket] = []
    for owners, names in sorted(by_owners.items()):
        axis = mesh.some(model.axis.name, owners)
        by_dtype: dict[torch.dtype, dict[str, nn.Parameter]] = {}
        for name in names:
            if name in parameters:
                by_dtype.setdefault(parameters[name].dtype, {})[name] = parameters[name]
        found += [_Bucket(axis, alike) for alike in by_dtype.values() if axis is not None and axis.size > 1]
    return found


def _can_be_summed_itself(grad: Tensor | None) -> TypeGuard[Tensor]:
    return grad is not None and grad.dtype == sum_dtype(grad.dtype) and grad.is_contiguous()


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Gradients are summed in float32 at least: the error of a narrow sum grows with the number of ranks."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def _gradient(name: str, parameter: Tensor, mesh: Mesh) -> Gradient:
    axes = tuple(axis for axis in spread(name, parameter).grad_sum if mesh.sizes[axis] > 1)
    size = parameter.numel() * sum_dtype(parameter.dtype).itemsize
    return Gradient(name, axes, str(parameter.dtype).removeprefix("torch."), size)
