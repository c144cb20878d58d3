"""Random inputs that make a wrong program show: nothing is alike, and labels are missing unevenly, if any may be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from graphpar.errors import Diagnostic, GraphparError
from graphpar.runtime.plan import Plan
from graphpar.verify.program import Batch

Pattern = Literal["uneven", "all", "tails"]

LENGTH = 24  # tokens, unless the plan asks for another multiple or has fewer positions
ROWS = 4


@dataclass(frozen=True)
class Size:
    """Rows and tokens of a batch, over all ranks."""

    rows: int
    length: int

    def __str__(self) -> str:
        return f"{self.rows} x {self.length}"


def fitting(plan: Plan, rows: int = ROWS, length: int = LENGTH) -> Size:
    """The size nearest to the wanted one that the plan can cut.

    Raises GraphparError when the positions of the model are fewer than the sequence has parts.
    """
    ways, unit = rows_of_step(plan), plan.seq_multiple
    most = length if plan.max_seq is None else min(length, plan.max_seq)
    if plan.max_seq is not None and plan.max_seq < unit:
        why = f"seq is cut into {unit} parts, and the model has {plan.max_seq} positions"
        raise GraphparError(Diagnostic("size", None, "no sequence fits this build", why=(why,), kind="check"))
    return Size(-(-rows // ways) * ways, max(most // unit, 1) * unit)


def rows_of_step(plan: Plan) -> int:
    """The fewest rows of a step: one on each data rank, in each microbatch of a pipeline."""
    return plan.ways(0) * (plan.pipeline.microbatches if plan.pipeline else 1)


def require_fitting(plan: Plan, rows: int | None, length: int | None, build: Path) -> None:
    """Raises GraphparError unless the plan can cut what was asked for, as it is."""
    asked = (("--rows", rows, rows_of_step(plan), None), ("--length", length, plan.seq_multiple, plan.max_seq))
    for option, value, unit, most in asked:
        if value is None:
            continue
        limits = [f"it is at least 1, and {value} < 1"] if value < 1 else []
        limits += [f"the model has {most} positions, and {value} > {most}"] if most is not None and value > most else []
        limits += [f"it is cut into {unit} parts: {value} mod {unit} = {value % unit}"] if value % unit else []
        if limits:
            below = min(value, most or value) // unit * unit
            message = f"{option} {value} does not fit this build"
            fix = f"graphpar verify {build} {option} {max(below, unit)}"
            raise GraphparError(Diagnostic("size", None, message, why=tuple(limits), fix=fix))


class Batches:
    """Fresh batches, one after the other, from one seed. Inputs and labels are independent draws."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self.random = torch.Generator().manual_seed(seed)
        self.per_row = plan.labels == "row"
        classes = plan.classes if self.per_row else plan.vocab
        if plan.vocab is None or classes is None or len(plan.inputs) != 2:
            names = ", ".join(entry.name for entry in plan.inputs)
            why = f"inputs: {names}; vocabulary: {plan.vocab or 'not found'}"
            why += f"; classes: {classes or 'not found'}" if self.per_row else ""
            message = "only a model of token ids and labels can be verified"
            raise GraphparError(Diagnostic("inputs", None, message, why=(why,), kind="check"))
        self.vocab, self.classes = plan.vocab, classes

    def draw(self, size: Size, pattern: Pattern = "uneven") -> Batch:
        """A batch of the given size."""
        ids = self._short_rows(size) if self.per_row else self._tokens(size)
        labels = torch.randint(0, self.classes, self._places(size), generator=self.random)
        if self.plan.ignore_index is not None:
            valid = self._valid_rows(size, pattern) if self.per_row else self._valid(size, pattern)
            labels = labels.masked_fill(~valid, self.plan.ignore_index)
        return self._named(ids, labels)

    def alike(self, size: Size) -> Batch:
        """One token everywhere: a router chooses few experts, and may choose none of those of a rank."""
        batch = self.draw(size, "all")
        ids = self.plan.inputs[0].name
        return batch | {ids: torch.full_like(batch[ids], int(batch[ids].flatten()[0]))}

    def probe(self, size: Size) -> tuple[Batch, Batch]:
        """Two batches with one label each, at the same place; the tokens that come after it in time differ.

        A causal model has the same loss on both. Only for labels of tokens, and a loss that leaves labels out.
        """
        ignore = self.plan.ignore_index
        if ignore is None:
            raise ValueError("no label can be left out of this loss")
        ids, labels = self._tokens(size), self._tokens(size)
        at = size.length // 2
        last = at if self.plan.labels == "next" else at - 1  # the token that the label is predicted from
        only = torch.zeros(labels.shape, dtype=torch.bool)
        only[-1, at] = True
        labels = (labels % max(self.vocab - 1, 1) + 1).masked_fill(~only, ignore)
        if int(labels[-1, at]) == ignore:
            labels[-1, at] = (ignore + 1) % self.vocab
        later = ids.clone()
        later[:, last + 1 :] = (later[:, last + 1 :] + 1) % self.vocab
        return self._named(ids, labels), self._named(later, labels.clone())

    def _places(self, size: Size) -> tuple[int, ...]:
        """The shape of the labels."""
        return (size.rows,) if self.per_row else (size.rows, size.length)

    def _tokens(self, size: Size) -> Tensor:
        return torch.randint(0, self.vocab, (size.rows, size.length), generator=self.random)

    def _short_rows(self, size: Size) -> Tensor:
        """Rows of several lengths, as a model reads them that looks for the end of each: zeros follow it."""
        ends = torch.randint(size.length, (size.rows, 1), generator=self.random)
        return self._tokens(size).masked_fill(torch.arange(size.length) > ends, 0)

    def _valid(self, size: Size, pattern: Pattern) -> Tensor:
        rows, length = size.rows, size.length
        if pattern == "all":
            return torch.ones(rows, length, dtype=torch.bool)
        if pattern == "tails":
            ends = length - 1 - torch.arange(rows).unsqueeze(1) * 3 % max(length - 2, 1)
            return torch.arange(length) <= ends
        valid = self._coins(rows * length).reshape(rows, length)
        valid[:, 1] = True  # no row is empty; a label at 0 may be dropped by the model's own shift
        for row, count in ((0, 1), (1, 3)):
            if row < rows:
                kept = 1 + torch.randperm(length - 1, generator=self.random)[:count]
                valid[row] = False
                valid[row, kept] = True
        return valid

    def _valid_rows(self, size: Size, pattern: Pattern) -> Tensor:
        if pattern == "all":
            return torch.ones(size.rows, dtype=torch.bool)
        valid = torch.arange(size.rows) % 3 < 2 if pattern == "tails" else self._coins(size.rows)
        valid[0] = True  # something is counted
        return valid

    def _coins(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.random) < 0.8

    def _named(self, ids: Tensor, labels: Tensor) -> Batch:
        first, second = self.plan.inputs
        return {first.name: ids.to(first.dtype), second.name: labels.to(second.dtype)}


def joined(batches: list[Batch]) -> Batch:
    """Several batches as one, row after row."""
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
