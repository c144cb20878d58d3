"""The one-device program as the thing to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from graphpar.verify import reference
from graphpar.verify.lift import lifted
from graphpar.verify.masks import without_masks
from graphpar.verify.program import Batch, Program, Values, one_device_mesh
from graphpar.verify.steps import Dropout, Trained, drop, losses


@dataclass(frozen=True)
class Single:
    """A program without collectives, and the values of its parameters and buffers."""

    program: Program
    values: Values

    def model(self, dtype: torch.dtype | None = torch.float64) -> nn.Module:
        """A fresh model; with None, in the dtypes of the source."""
        return self.program.model(one_device_mesh(self.program), self.values, dtype)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """The mean loss over the labels of a batch."""
        with lifted(self.program.text, model):
            if not self.program.document["count"]:
                return model(**batch)
            count: Tensor = model.count(**batch)  # pyright: ignore[reportCallIssue]
            return model(**batch, count=count)

    def losses(self, batches: Sequence[Batch], dtype: torch.dtype | None = torch.float64) -> list[Tensor]:
        """The loss of each batch."""
        return losses(self.program, one_device_mesh(self.program), self.model(dtype), batches)

    def step(
        self, batch: Batch, dtype: torch.dtype | None = torch.float64, dropout: Dropout | None = None
    ) -> reference.Gradients:
        """Loss, gradients and norm."""
        mesh = one_device_mesh(self.program)
        model = self.program.model(mesh, self.values, dtype)
        drop(mesh, model, dropout)
        return reference.gradients(trainable(model), lambda b: self.loss(model, b), batch)

    def step_without_masks(self, batch: Batch) -> reference.Gradients:
        """Loss, gradients and norm in training mode, with the mean of each mask of dropout in its place."""
        model = self.model().train()
        without_masks(model)
        return reference.gradients(trainable(model), lambda b: self.loss(model, b), batch)

    def train(self, batches: Sequence[Batch]) -> Trained:
        """One update for each batch."""
        model = self.model()
        return reference.trained(trainable(model), lambda b: self.loss(model, b), batches)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
