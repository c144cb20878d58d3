"""Which values of a rank a value was computed from, and which were computed from it, through all calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphpar.verify.statements import RETURNED, Statement
from graphpar.verify.watch import Seen


class Flow:
    """The values of one rank in the order in which they came, and the statements that they came from.

    A call begins behind the last value that its module returned, and ends with the value that it returns next. The
    statement that called it gives the next value of the nearest module above it.
    """

    def __init__(self, seen: Sequence[Seen], statements: Mapping[int, Statement]) -> None:
        self.seen = seen
        self.statements = statements
        self.starts: list[int] = []  # of each value, where its call begins
        self.caller: dict[int, int] = {}  # from what a call returns to what its caller makes of it
        self.returned: dict[int, list[int]] = {}  # and back
        self._find_calls()

    def _find_calls(self) -> None:
        paths = {s.path for s in self.seen}
        begins: dict[str, int] = {}
        given: dict[str, list[int]] = {}  # by module, what was returned to it and not yet taken
        for i, seen in enumerate(self.seen):
            self.starts.append(begins.setdefault(seen.path, i))
            self.returned[i] = given.pop(seen.path, [])
            self.caller |= dict.fromkeys(self.returned[i], i)
            if seen.name.startswith(RETURNED):
                del begins[seen.path]
                if seen.path:
                    given.setdefault(_above(seen.path, paths), []).append(i)

    def makers(self, index: int) -> list[int]:
        """The values that a value was computed from."""
        found = dict.fromkeys(self.returned[index])
        for name in self.statements[self.seen[index].line].uses:
            found |= dict.fromkeys(self._givers(index, name))
        return list(found)

    def _givers(self, index: int, name: str) -> list[int]:
        """What a name stood for in a statement: a value of its call, or one of those that the caller gave it."""
        own = [n for n in range(self.starts[index], index) if self._is(n, index, name)]
        if own:
            return own[-1:]
        call = self._call_of(index)
        if call is None:
            return []
        return [n for used in self.statements[self.seen[call].line].uses for n in self._givers(call, used)]

    def _is(self, other: int, index: int, name: str) -> bool:
        return self.seen[other].path == self.seen[index].path and self.seen[other].name == name

    def _call_of(self, index: int) -> int | None:
        """The value of the caller that the call of a value leads to; nothing in the model itself."""
        path = self.seen[index].path
        ends = (
            n
            for n in range(index, len(self.seen))
            if self.seen[n].path == path and self.seen[n].name.startswith(RETURNED)
        )
        return self.caller.get(next(ends, -1))

    def readers(self, index: int) -> list[int]:
        """The values that were computed from a value."""
        if index in self.caller:
            return [self.caller[index]]
        return list(self._readers(index, index + 1, self.seen[index].path, self.seen[index].name))

    def _readers(self, index: int, start: int, path: str, name: str) -> Iterator[int]:
        for n in range(start, len(self.seen)):
            other = self.seen[n]
            if other.path == path:
                if name in self.statements[other.line].uses:
                    yield n
                    yield from self._inside(n)
                if other.name == name or other.name.startswith(RETURNED):
                    return

    def _inside(self, call: int) -> Iterator[int]:
        """The values that calls within a statement made from what they were given."""
        for end in self.returned[call]:
            path, assigned = self.seen[end].path, set[str]()
            for n in range(self.starts[end], end + 1):
                if self.seen[n].path == path:
                    if not self.statements[self.seen[n].line].uses <= assigned:
                        yield n
                        yield from self._inside(n)
                    assigned.add(self.seen[n].name)


def _above(path: str, paths: set[str]) -> str:
    """The nearest module above one that told anything."""
    while path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return ""
