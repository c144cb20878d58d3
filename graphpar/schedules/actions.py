"""What a rank of a pipeline does, in the words of torch's schedule files: `2F0` is stage 2's forward, microbatch 0."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

Kind = Literal["F", "B", "I", "W"]


class Action(NamedTuple):
    """One computation of one stage for one microbatch.

    F is the forward, B the whole backward; I and W are its halves, the gradient of the stage's input and those of its
    weights.
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


Step: TypeAlias = tuple[Action, ...]  # one action, or a forward and a backward that overlap
Order: TypeAlias = Mapping[int, tuple[Step, ...]]  # by rank

_ONE = re.compile(r"(\d+)([FBIW])(\d+)")
_BOTH = re.compile(r"\((.+);(.+)\)OVERLAP_F_B")


def parse(text: str) -> Step:
    """`2F0`, or `(2F0;1B3)OVERLAP_F_B`. Raises ValueError with the word that is none of these."""
    if both := _BOTH.fullmatch(text):
        return tuple(action for part in both.groups() for action in parse(part))
    one = _ONE.fullmatch(text)
    if one is None:
        raise ValueError(text)
    stage, kind, microbatch = one.groups()
    return (Action(int(stage), _KINDS[kind], int(microbatch)),)


def spell(step: Step) -> str:
    """The word that `parse` reads."""
    words = [str(action) for action in step]
    return words[0] if len(words) == 1 else f"({';'.join(words)})OVERLAP_F_B"


def every(order: Order) -> Iterator[tuple[int, Action]]:
    """All actions with their ranks, each rank's in its order."""
    for rank, steps in order.items():
        for step in steps:
            for action in step:
                yield rank, action


def homes(order: Order) -> dict[int, int]:
    """The rank of each stage."""
    return {action.stage: rank for rank, action in every(order)}


_KINDS: dict[str, Kind] = {"F": "F", "B": "B", "I": "I", "W": "W"}
