"""Rows with a label each, from files of JSON lines: `{"ids": [5, 0, 7], "label": 2}`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpar.runtime.plan import Plan
from graphpar.runtime.problems import UsageError
from graphpar.runtime.settings import HELD_OUT, ROW, Settings


@dataclass(frozen=True)
class Rows:
    """Token ids [rows, seq] and one label for each row [rows], both int64."""

    ids: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.ids[index], self.labels[index]

    def split(self) -> tuple[Rows, Rows]:
        """(training rows, held-out rows). Raises UsageError when either would be empty."""
        held = len(self) // HELD_OUT
        if not held:
            raise UsageError(f"--data has {len(self)} rows; one in {HELD_OUT} is held out, so give {HELD_OUT} or more")
        first = len(self) - held
        return Rows(self.ids[:first], self.labels[:first]), Rows(self.ids[first:], self.labels[first:])


def read_rows(settings: Settings, plan: Plan) -> Rows:
    """The rows of all files of --data, in order.

    Raises UsageError, with the file and the line, for what is missing, no row, of another length than --seq, or beyond
    the vocabulary or the classes.
    """
    if settings.tokenizer:
        raise UsageError("--tokenizer has nothing to do: rows hold token ids")
    found = [row for path in settings.data for row in _rows(path, settings.seq, plan)]
    if not found:
        raise UsageError("--data holds no rows")
    return Rows(torch.tensor([ids for ids, _ in found]), torch.tensor([label for _, label in found]))


def _rows(path: Path, seq: int, plan: Plan) -> Iterator[tuple[list[int], int]]:
    if not path.is_file():
        raise UsageError(f"--data {path} is no file of rows, one to a line: {ROW}")
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _row(line, f"{path}:{number}", seq, plan)


def _row(line: str, where: str, seq: int, plan: Plan) -> tuple[list[int], int]:
    ids, label = _read(line, where)
    if len(ids) != seq:
        raise UsageError(
            f"{where} has {len(ids)} ids, and --seq is {seq}: rows have one length, so pad them as the model expects"
            f" and give --seq {len(ids)}"
        )
    _require_below(ids, plan.vocab, f"{where} holds token", "the model's vocabulary has")
    if label != plan.ignore_index:
        _require_below([label], plan.classes, f"{where} has label", "the model's classes are")
    return ids, label


def _read(line: str, where: str) -> tuple[list[int], int]:
    try:
        row: Any = json.loads(line)
        ids, label = list(row["ids"]), row["label"]
    except json.JSONDecodeError as error:
        raise UsageError(f"{where} is not JSON ({error.msg} at column {error.colno}); a row is {ROW}") from None
    except (KeyError, TypeError):
        raise UsageError(f"{where} has no `ids` and `label`; a row is {ROW}") from None
    if not all(type(n) is int for n in (*ids, label)):
        raise UsageError(f"{where} holds what is no whole number; a row is {ROW}")
    return ids, label


def _require_below(values: Sequence[int], limit: int | None, what: str, of: str) -> None:
    for x in values:
        if x < 0 or (limit is not None and x >= limit):
            raise UsageError(f"{what} {x}" + (f", but {of} {limit} (0 to {limit - 1})" if limit else ""))
