"""For which modules of the source one that is drawn stands: `layers.*.mlp` for all, `layers[0::2].mlp` for some."""

from __future__ import annotations

import re

_GROUP = re.compile(r"\[([^\]]*)\]|\.\*")


def stands_for(path: str, name: str) -> bool:
    """Whether a path with stars and slices is that of a plain name."""
    groups = [group or ":" for group in _GROUP.findall(path)]
    pattern = r"\.(\d+)".join(re.escape(part) for part in _GROUP.sub("\0", path).split("\0"))
    found = re.fullmatch(pattern, name)
    return found is not None and all(_has(group, int(i)) for group, i in zip(groups, found.groups(), strict=True))


def _has(group: str, index: int) -> bool:
    """Whether `0::2`, `3` or `0, 3, 4` has an index."""
    if ":" not in group:
        return index in [int(word) for word in group.split(",")]
    bounds = slice(*(int(word) if word else None for word in group.split(":")))
    return index in range(*bounds.indices(index + 1))
