"""What would be right and is not done: an op run as it is on every combination of what ranks may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import torch
from torch import Tensor

from tools.ops.allowed import SUM, WHOLE, Held, Way, halves, leaves, rules
from tools.ops.case import Case
from tools.ops.program import whole

DRAWS = (11, 12)
COMBINED = (SUM, Held("max"), Held("min"))


def missing(case: Case) -> list[Way]:
    """The ways in which the op alone gives the right result, and which the rules do not use."""
    names = list(leaves(whole(case)))
    if case.build is not None or len(set(names)) < len(case.operands) or len(names) > len(case.operands):
        return []  # an operand that is read twice is held in two ways
    known = rules(case)
    return [way for way in right(case) if way not in known]


def right(case: Case) -> Iterator[Way]:
    """Every way over one mesh axis of two ranks in which the op alone gives the right result."""
    named = whole(case)
    axes = dict(zip(leaves(named), (v for v in named.op.views if v is not None), strict=False))
    operands = {o.name: o for o in case.operands}
    ways = [
        [WHOLE, *halves(operands[n].shape, axes.get(n, ())), *([SUM] if operands[n].real else [])]
        for n in leaves(named)
    ]
    results = [WHOLE, *halves(case.shape, named.op.named), *COMBINED]
    draws = [_Draw(case, seed) for seed in DRAWS]
    for held in product(*ways):
        if all(h is WHOLE for h in held):
            continue
        for result in results:
            if all(draw.agrees(held, result) for draw in draws):
                yield held, result


class _Draw:
    """Operands with random values, what torch makes of them whole, and of the parts."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.values = case.values(seed)
        self.want = case.run(self.values)
        random = torch.Generator().manual_seed(seed)
        self.summands = {o.name: o.draw(random) for o in case.operands if o.real}
        self.made: dict[tuple[object, ...], list[Tensor] | None] = {}

    def agrees(self, held: tuple[Held, ...], result: Held) -> bool:
        """Whether what the ranks make is the whole result, held like this."""
        parts = self.parts(held, result)
        if parts is None:
            return False
        if result.how == "cut":
            return all(_close(own, result.part(self.want, r)) for r, own in enumerate(parts))
        if result is WHOLE:
            return all(_close(own, self.want) for own in parts)
        if any(own.shape != self.want.shape for own in parts) or not self.want.is_floating_point():
            return False
        a, b = parts
        return _close({"sum": torch.add, "max": torch.maximum, "min": torch.minimum}[result.how](a, b), self.want)

    def parts(self, held: tuple[Held, ...], result: Held) -> list[Tensor] | None:
        """What each rank makes of its parts; None where torch refuses."""
        told = "sizes" in self.case.call
        sizes = tuple(result.part(self.want, 0).shape) if result.how == "cut" else self.case.shape
        key = (held, sizes if told else None)
        if key not in self.made:
            try:
                self.made[key] = [self.case.run(self.rank(held, r), sizes) for r in range(2)]
            except (RuntimeError, IndexError, ValueError, AssertionError):  # as the function of torch has it
                self.made[key] = None
        return self.made[key]

    def rank(self, held: tuple[Held, ...], rank: int) -> Mapping[str, Tensor]:
        """The operands of a rank."""
        found: dict[str, Tensor] = {}
        for (name, value), how in zip(self.values.items(), held, strict=True):
            first = self.summands.get(name, value)
            summand = first if rank == 0 else value - first
            found[name] = summand if how is SUM else how.part(value, rank) if how.how == "cut" else value
        return found


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    return torch.allclose(a, b, 1e-9, 1e-9, equal_nan=True) if a.is_floating_point() else torch.equal(a, b)
