"""What a plan takes against what its spec expects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graphpar.errors import Diagnostic
from graphpar.explain.memory import Memory, spell
from graphpar.explain.traffic import Traffic
from graphpar.language.schema import Budget, Expect


def over_budget(expect: Expect, traffic: Sequence[Traffic], memory: Memory, lines: int) -> list[Diagnostic]:
    """One diagnostic with everything that is more than expected, and the budgets that would do; none if nothing is."""
    taken = {f"{t.phase} {t.kind} {t.axis}": t for t in traffic}
    over = list(_collectives(expect.collectives, taken)) if expect.collectives is not None else []
    if expect.memory is not None and memory.total > expect.memory:
        over.append(f"memory: {spell(memory.total)} per rank, at most {spell(expect.memory)} expected")
    if expect.lines is not None and lines > expect.lines:
        over.append(f"lines: {lines} in model.py, at most {expect.lines} expected")
    if not over:
        return []
    message = "this plan takes more than the spec expects, and is not written"
    fix = _as_it_is(expect, taken, memory, lines)
    return [Diagnostic("over-budget", expect.span, message, why=tuple(over), fix=fix)]


def _collectives(budgets: Iterable[Budget], taken: Mapping[str, Traffic]) -> Iterable[str]:
    listed = {budget.what: budget for budget in budgets}
    for what, found in taken.items():
        budget = listed.get(what)
        if budget is None:
            yield f"{what}: {found.count}, none expected"
        elif budget.count is not None and found.count > budget.count:
            yield f"{what}: {found.count}, at most {budget.count} expected"
        elif budget.bytes is not None and found.bytes > budget.bytes:
            yield f"{what}: {spell(found.bytes)}, at most {spell(budget.bytes)} expected"


def _as_it_is(expect: Expect, taken: Mapping[str, Traffic], memory: Memory, lines: int) -> str:
    text = ["expect:"]
    if expect.collectives is not None:
        text.append("  collectives:")
        text += [f"    {what}: {{count: {t.count}, bytes: {t.bytes}}}" for what, t in taken.items()]
    text += [f"  memory: {memory.total}"] if expect.memory is not None else []
    text += [f"  lines: {lines}"] if expect.lines is not None else []
    return "\n".join(text)
