"""The batches of every step: one global order for all ranks, of which each takes its slice.

A sample is a window of `seq` tokens; windows do not overlap, and one pass over the data takes each once, in an order
that depends on (seed, pass) only. So the batch of a step follows from (seed, step): no rank has a stream of its own,
and the position in the data is the step number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from graphpar.runtime.mesh import Mesh
from graphpar.runtime.plan import Input, Plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.rows import Rows
from graphpar.runtime.settings import HELD_OUT, Settings
from graphpar.runtime.shards import Place, block
from graphpar.runtime.tokens import check_vocab

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class Windows:
    """Tokens seen as windows of `seq`, each followed by the `ahead` tokens that its labels need."""

    tokens: Tensor
    seq: int
    ahead: int

    def __len__(self) -> int:
        return max(0, (self.tokens.numel() - self.ahead) // self.seq)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        start = index * self.seq
        tokens = self.tokens[start : start + self.seq + self.ahead].to(torch.int64)
        return tokens[: self.seq], tokens[self.ahead :]


def split(tokens: Tensor, seq: int, ahead: int) -> tuple[Windows, Windows]:
    """(training windows, held-out windows). Raises UsageError when either would be empty."""
    total = tokens.numel()
    held = total // HELD_OUT
    windows = Windows(tokens[: total - held], seq, ahead), Windows(tokens[total - held :], seq, ahead)
    if not all(len(part) for part in windows):
        raise UsageError(
            f"--data has {total} tokens, of which the last {held} are held out;"
            f" one held-out window takes {seq + ahead} tokens, so give {HELD_OUT * (seq + ahead)} or more"
            f" or make --seq {seq} smaller"
        )
    return windows


def sample(count: int, position: int, seed: int) -> int:
    """Which of `count` windows is the `position`-th to be trained on, over all passes."""
    epoch, at = divmod(position, count)
    return int(_order(count, epoch, seed)[at])


@lru_cache(maxsize=2)  # a batch may span the end of a pass
def _order(count: int, epoch: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed((seed * 0x9E3779B1 + epoch) % (1 << 63))
    return torch.randperm(count, generator=generator)


class Batches:
    """This rank's part of each microbatch, on its device."""

    def __init__(self, data: Tensor | Rows, plan: Plan, settings: Settings, mesh: Mesh) -> None:
        self.plan = plan
        self.settings = settings
        self.place = Place(mesh.sizes, mesh.coordinates)
        self.device = mesh.device
        self.trained, self.held_out = (
            data.split() if isinstance(data, Rows) else split(data, settings.seq, int(plan.labels == "next"))
        )
        if not plan.count:
            _require_a_whole_batch(len(self.held_out), settings, plan)

    def training(self, step: int) -> list[Batch]:
        """The microbatches of `step`."""
        first = step * self.settings.batch
        order = [sample(len(self.trained), first + row, self.settings.seed) for row in range(self.settings.batch)]
        rows = self.settings.rows
        return [self._batch(self.trained, order[start : start + rows]) for start in range(0, self.settings.batch, rows)]

    def evaluation(self) -> Iterator[Batch]:
        """The first `eval_batches` microbatches of held-out windows, each window once.

        Ignored rows fill up the last one. A model that divides its loss by itself would count them: it has no such one.
        """
        rows = self.settings.rows
        count = min(len(self.held_out), self.settings.eval_batches * rows)
        count -= 0 if self.plan.count else count % rows
        for start in range(0, count, rows):
            order = list(range(start, min(start + rows, count)))
            yield self._batch(self.held_out, order + [None] * (rows - len(order)))

    def _batch(self, samples: Windows | Rows, order: list[int] | list[int | None]) -> Batch:
        ids, labels = self.plan.inputs
        mine = block(torch.arange(len(order)), ids.cut.get(0, ()), 0, self.place).tolist()
        chosen = [order[row] for row in mine]
        pairs = [samples[0 if index is None else index] for index in chosen]
        tokens, targets = (torch.stack(part) for part in zip(*pairs, strict=True))
        if self.plan.vocab is not None:
            check_vocab(tokens, self.plan.vocab, "the batch")
        if self.plan.ignore_index is not None:
            targets[[index is None for index in chosen]] = self.plan.ignore_index
        batch = {ids.name: self._columns(tokens, ids), labels.name: self._columns(targets, labels)}
        check_shapes(batch, self.plan)
        return batch

    def _columns(self, rows: Tensor, entry: Input) -> Tensor:
        part = block(rows, entry.cut[1], 1, self.place) if 1 in entry.cut else rows
        return part.to(dtype=entry.dtype, device=self.device).contiguous()


def _require_a_whole_batch(held: int, settings: Settings, plan: Plan) -> None:
    if not settings.eval_batches or held >= settings.rows:
        return
    fits = held // plan.ways(0) * plan.ways(0) * settings.accumulate
    smaller = f"--batch {fits} or " if fits else ""
    raise UsageError(
        f"the held-out part of --data has {held} windows of {settings.seq} tokens, fewer than the {settings.rows} rows"
        f" of a microbatch, and this loss counts every row; {smaller}--eval-batches 0 would do"
    )


def check_shapes(batch: Mapping[str, Tensor], plan: Plan) -> None:
    """Raise UsageError unless ids and labels pair up, position by position, or row by row."""
    (first, ids), *others = batch.items()
    wanted = ids.shape[:1] if plan.labels == "row" else ids.shape
    for name, labels in others:
        if labels.shape != wanted:
            per_row = ", and each row has one label" if plan.labels == "row" else ""
            raise UsageError(
                f"{name} has shape {tuple(labels.shape)}, but {first} has shape {tuple(ids.shape)}{per_row}"
            )
