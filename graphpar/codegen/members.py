"""The members of a list of modules, as expressions whose length does not depend on how many there are."""

from __future__ import annotations

from collections.abc import Sequence


def members(names: Sequence[str]) -> str:
    """A whole list, by the class of each member."""
    if len(set(names)) == 1:
        return f"nn.ModuleList({names[0]}(mesh) for _ in range({len(names)}))"
    period = _period(names)
    if len(period) < len(names):
        times = len(names) // len(period)
        return f"nn.ModuleList(block(mesh) for _ in range({times}) for block in ({', '.join(period)}))"
    return f"nn.ModuleList(block(mesh) for block in {_runs(names)})"


def members_of_stage(names: Sequence[str]) -> str:
    """The members that a stage runs, under their indices in the whole list."""
    if len(set(names)) == 1:
        return f"nn.ModuleDict({{str(i): {names[0]}(mesh) for i in layers}})"
    period = _period(names)
    cycle = f"[{', '.join(period)}] * {len(names) // len(period)}"
    blocks = cycle if len(period) < len(names) else _runs(names)
    return f"nn.ModuleDict({{str(i): block(mesh) for i, block in zip(layers, {blocks}, strict=True)}})"


def as_slice(indices: Sequence[int], count: int | None) -> str:
    """Indices as a Python slice where they are one, such as [0::2], [3] or [1:11]; of a list of `count`, if known."""
    if len(indices) == 1:
        return f"[{indices[0]}]"
    step = indices[1] - indices[0]
    if list(indices) != list(range(indices[0], indices[-1] + 1, step)):
        return str(list(indices))
    stop = "" if count is not None and indices[-1] + step >= count else str(indices[-1] + 1)
    return f"[{indices[0]}:{stop}]" if step == 1 else f"[{indices[0]}:{stop}:{step}]"


def _period(names: Sequence[str]) -> Sequence[str]:
    """The shortest row of names that the whole row repeats."""
    for length in range(1, len(names)):
        if len(names) % length == 0 and list(names) == list(names[:length]) * (len(names) // length):
            return names[:length]
    return names


def _runs(names: Sequence[str]) -> str:
    """Equal neighbours counted: `[First] + [Block] * 11`."""
    found: list[tuple[str, int]] = []
    for name in names:
        if found and found[-1][0] == name:
            found[-1] = (name, found[-1][1] + 1)
        else:
            found.append((name, 1))
    return " + ".join(f"[{name}]" + (f" * {n}" if n > 1 else "") for name, n in found)
