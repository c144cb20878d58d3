"""Sums of gradients over the mesh, while backward still runs."""

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn

from graphpar.runtime.buckets import BUCKET_BYTES, Gradient, buckets
from graphpar.runtime.comm import Handle
from graphpar.runtime.mesh import Mesh
from graphpar.runtime.parameters import spread


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
    """

    def __init__(self, model: nn.Module, mesh: Mesh, bucket_bytes: int = BUCKET_BYTES) -> None:
        self._mesh = mesh
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        gradients = [_gradient(name, p, mesh) for name, p in parameters.items()]
        self._buckets = [
            _Bucket(mesh, group[0].axes, {gradient.name: parameters[gradient.name] for gradient in group})
            for group in buckets(gradients, bucket_bytes)
        ]
        self._started = 0  # buckets
        self._watching = False
        for bucket in self._buckets:
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

    def _arrived(self, bucket: "_Bucket", name: str, parameter: Tensor) -> None:
        del parameter
        if not self._watching:
            return
        if bucket.handle is not None:
            raise RuntimeError(
                f"a gradient of {name} came after its sum had started: more than one backward in the block"
            )
        bucket.missing.discard(name)
        with self._mesh.during("step"):
            while self._started < len(self._buckets) and not self._buckets[self._started].missing:
                self._start_next()

    def _start_next(self) -> None:
        self._buckets[self._started].start()
        self._started += 1


class _Bucket:
    """Gradients that are summed in one all-reduce."""

    def __init__(self, mesh: Mesh, axes: tuple[str, ...], parameters: dict[str, nn.Parameter]) -> None:
        self.parameters = parameters
        self.missing = set(parameters)
        self.handle: Handle | None = None
        self._axis = mesh.axis(axes)
        self._flat = torch.empty(0)

    @torch.no_grad()
    def start(self) -> None:
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters.values()]
        dtype = sum_dtype(parts[0].dtype)
        if len(parts) == 1 and parts[0].dtype == dtype and parts[0].is_contiguous():
            self._flat = parts[0].view(-1)
        else:
            self._flat = torch.cat([part.reshape(-1).to(dtype) for part in parts])
        self.handle = self._axis.start_all_reduce(self._flat)

    @torch.no_grad()
    def finish(self) -> None:
        """Gradients become views of the sum, without a copy where the dtype is the same."""
        assert self.handle is not None
        self.handle.wait()
        sums = self._flat.split([p.numel() for p in self.parameters.values()])
        for parameter, total in zip(self.parameters.values(), sums, strict=True):
            parameter.grad = total.view_as(parameter).to(parameter.dtype)
        self.handle, self.missing, self._flat = None, set(self.parameters), torch.empty(0)


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """Gradients are summed in float32 at least: the error of a narrow sum grows with the number of ranks."""
    return torch.float32 if dtype.itemsize < 4 else dtype


def _gradient(name: str, parameter: Tensor, mesh: Mesh) -> Gradient:
    axes = tuple(axis for axis in spread(name, parameter).grad_sum if mesh.sizes[axis] > 1)
    size = parameter.numel() * sum_dtype(parameter.dtype).itemsize
    return Gradient(name, axes, str(parameter.dtype).removeprefix("torch."), size)
