"""Which value of one device each value of a rank stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from graphpar.verify.statements import RETURNED, Statement
from graphpar.verify.watch import Seen

_Key = tuple[str, str, str]


def pairs(
    ours: Sequence[Seen], our_text: Mapping[int, Statement], theirs: Sequence[Seen], their_text: Mapping[int, Statement]
) -> list[Seen | None]:
    """For each of our values the one-device value it stands for: that of the same statement of the same module.

    A collective changes how a value lies and not what it is, so what it returns stands for what it was given.
    """
    our_keys, their_keys = _keys(ours, our_text), _keys(theirs, their_text)
    counts = Counter(our_keys)
    wanted: dict[_Key, list[Seen]] = {}
    for key, seen in zip(their_keys, theirs, strict=True):
        wanted.setdefault(key, []).append(seen)
    number: Counter[_Key] = Counter()
    current: dict[tuple[str, str], Seen | None] = {}
    found: list[Seen | None] = []
    for key, seen in zip(our_keys, ours, strict=True):
        statement = our_text[seen.line]
        if statement.is_move:
            match = current.get((seen.path, statement.moves)) if statement.moves else None
        else:
            same = wanted.get(key, [])
            match = same[number[key]] if len(same) == counts[key] else None
            number[key] += 1
        current[seen.path, seen.name] = match
        found.append(match)
    return found


def _keys(seen: Sequence[Seen], text: Mapping[int, Statement]) -> list[_Key]:
    """Module, name and what is computed; what a module returns is the same however it is computed."""
    return [(s.path, s.name, "" if s.name.startswith(RETURNED) else text[s.line].computes) for s in seen]
