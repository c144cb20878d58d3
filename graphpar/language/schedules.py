"""The schedules of a pipeline that have names, and what each of them needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """One entry of the table.

    A rank has at least `least` and at most `most` stages, `usual` if nothing is said. Stage s lies on rank s mod ranks;
    where stages come `back`, the second one of each rank is counted the other way round. Microbatches go in `rounds`
    of as many as there are ranks, or a step has at least one for each stage (`filled`).
    """

    least: int
    most: int
    usual: int
    back: bool = False
    rounds: bool = False
    filled: bool = False

    def rank(self, stage: int, ranks: int) -> int:
        """The rank of a stage."""
        turn, place = divmod(stage, ranks)
        return ranks - 1 - place if self.back and turn % 2 else place


MANY = 1 << 20
SCHEDULES: Mapping[str, Schedule] = {
    "gpipe": Schedule(1, 1, 1),
    "1f1b": Schedule(1, 1, 1),
    "interleaved": Schedule(2, MANY, 2, rounds=True),
    "zero_bubble": Schedule(1, MANY, 1, rounds=True),
    "zbv": Schedule(2, 2, 2, back=True),
    "dualpipev": Schedule(2, 2, 2, back=True, filled=True),
}
