"""In which order the states of one value change, where several mesh axes change at once.

A factor cut by several mesh axes is cut from the outermost inwards and gathered from the innermost outwards: to gather
an outer axis around an inner one would put the blocks in the wrong order. An inner cut that has to make room is
gathered and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphpar.ir.states import I, Partial, Shard, State

Order = Callable[[int], Sequence[str]]
Apart = Callable[[int, int], bool]


def routes(
    have: Mapping[str, State], want: Mapping[str, State], order: Order, apart: Apart = lambda a, b: True
) -> list[tuple[str, State]]:
    """The moves (mesh axis, next state) that lead from `have` to `want`.

    Cuts come first, so that less is sent; then exchanges, gathers, sums, and what costs nothing. `apart` says whether
    two factors lie in different dimensions: one dimension is not cut and joined at once.
    """
    factors = dict.fromkeys(s.factor for s in (*have.values(), *want.values()) if isinstance(s, Shard))
    lists = {f: (_cut(have, f, order), _cut(want, f, order)) for f in factors}
    kept = {f: _common(before, after) for f, (before, after) in lists.items()}
    traded = _traded(have, want, lists, kept, apart)
    cuts: list[tuple[str, State]] = []
    gathers: list[tuple[str, State]] = []
    again: list[tuple[str, State]] = []
    for f, (before, after) in lists.items():
        leaving = [a for a in before[kept[f] :] if a not in traded]
        coming = [a for a in after[kept[f] :] if a not in traded]
        gathers += [(a, I if isinstance(want[a], Shard) else want[a]) for a in reversed(leaving)]
        late = leaving or _left(lists, kept, traded) & set(coming) or any(_leaves(have[a], f) for a in traded)
        (again if late else cuts).extend((a, want[a]) for a in coming)
    moved = {a for a, _ in (*cuts, *gathers, *again)} | set(traded)
    rest = [(a, want[a]) for a in want if a not in moved and have[a] != want[a]]
    sums = [(a, s) for a, s in rest if isinstance(have[a], Partial)]
    free = [(a, s) for a, s in rest if not isinstance(have[a], Partial)]
    return [*cuts, *((a, want[a]) for a in traded), *gathers, *again, *sums, *free]


def _cut(states: Mapping[str, State], factor: int, order: Order) -> list[str]:
    axes = [a for a, s in states.items() if isinstance(s, Shard) and s.factor == factor]
    return sorted(axes, key=list(order(factor)).index)


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    count = 0
    while count < min(len(before), len(after)) and before[count] == after[count]:
        count += 1
    return count


def _traded(
    have: Mapping[str, State],
    want: Mapping[str, State],
    lists: Mapping[int, tuple[list[str], list[str]]],
    kept: Mapping[int, int],
    apart: Apart,
) -> list[str]:
    """Axes that pass from one factor to another, innermost in both: one all-to-all each."""
    found: list[str] = []
    for axis, old in have.items():
        new = want[axis]
        if isinstance(old, Shard) and isinstance(new, Shard) and old.factor != new.factor:
            before, after = lists[old.factor][0][kept[old.factor] :], lists[new.factor][1][kept[new.factor] :]
            leaving = lists[new.factor][0][kept[new.factor] :]
            if before == [axis] and after == [axis] and not leaving and apart(old.factor, new.factor):
                found.append(axis)
    return found


def _left(lists: Mapping[int, tuple[list[str], list[str]]], kept: Mapping[int, int], traded: Sequence[str]) -> set[str]:
    """Axes that are gathered from some factor before they can cut another."""
    return {a for f, (before, _) in lists.items() for a in before[kept[f] :] if a not in traded}


def _leaves(state: State, factor: int) -> bool:
    return isinstance(state, Shard) and state.factor == factor
