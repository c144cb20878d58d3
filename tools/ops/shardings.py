"""Every way to cut a case: one factor, two, one factor twice, and operands that are pending sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

from tools.ops.case import Case
from tools.ops.program import Program, Sharding, Whole, placed, whole


def programs(case: Case) -> Iterator[Program]:
    """The case placed for every layout over one mesh axis, and for pairs over two; each way to run it comes once."""
    seen: set[object] = set()
    for program in _all(case):
        key = (
            tuple(program.layout.mesh),
            *((n.op, n.shape, *(f"{a}{s}" for a, s in (n.state or {}).items())) for n in program.graph.nodes),
        )
        if key not in seen and any(str(s) != "I" for n in program.graph.nodes for s in (n.state or {}).values()):
            seen.add(key)
            yield program


def _all(case: Case) -> Iterator[Program]:
    plain = whole(case)
    yield from single(plain)
    yield from double(plain)
    for pending in pendings(case):
        yield from summands(whole(case, pending))


def single(whole: Whole) -> Iterator[Program]:
    """One factor over one axis."""
    for factor in whole.factors:
        yield placed(whole, Sharding({factor: ("x",)}, {}))


def double(whole: Whole) -> Iterator[Program]:
    """Two factors over an axis each; two that want the same axis, so that an operand has to be cut another way."""
    factors = sorted(whole.factors)
    for a, b in combinations(factors, 2):
        yield placed(whole, Sharding({a: ("x",), b: ("y",)}, {}))
    for a, b in zip(factors, factors[1:] + factors[:1], strict=True):
        yield placed(whole, Sharding({a: ("x",), b: ("x",)} if a != b else {a: ("x", "y")}, {}))
    for factor in factors[:1]:
        yield placed(whole, Sharding({factor: ("x", "y")}, {}))


def pendings(case: Case) -> list[frozenset[str]]:
    """Groups of operands that may be pending sums together."""
    names = [o.name for o in case.operands if o.real]
    return [frozenset(group) for n in range(1, len(names) + 1) for group in combinations(names, n)]


def summands(whole: Whole) -> Iterator[Program]:
    """Pending sums over one axis; if all operands are, also with a factor cut over the other axis or the same."""
    pending = dict.fromkeys(whole.pending, ("x",))
    yield placed(whole, Sharding({}, pending))
    if len(whole.pending) == sum(o.real for o in whole.case.operands):
        for factor in whole.factors:
            yield placed(whole, Sharding({factor: ("y",)}, pending))
            yield placed(whole, Sharding({factor: ("x",)}, pending))


def flows(case: Case) -> Iterable[Program]:
    """The case with each group of operands pending and nothing cut."""
    for pending in pendings(case):
        yield placed(whole(case, pending), Sharding({}, dict.fromkeys(pending, ("x",))))
