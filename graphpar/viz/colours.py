"""One colour per mesh axis, the same wherever the axis is drawn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

# Far apart in lightness as well as in hue, and dark enough for white text.
AXES = ("#1f6fb2", "#c2410c", "#15803d", "#7c3aed", "#be185d", "#4d7c0f")

INK = "#1f2933"
GREY = "#6b7280"
FAINT = "#9aa3af"
RULE = "#d5dae1"
PAPER = "#ffffff"
REGION = "#ece8f7"  # behind experts
LEVELS = ("#f6f7f9", "#eceff3", "#e3e7ed", "#dadfe7")  # behind modules, by depth


def colours(mesh: Mapping[str, int]) -> dict[str, str]:
    """The colour of each mesh axis."""
    return {axis: AXES[i % len(AXES)] for i, axis in enumerate(mesh)}


# What a collective does, as its nodes are filled. Distinct in lightness, too, and dark enough for white text.
KINDS: Mapping[str, str] = {
    "all_gather": "#0e7490",
    "reduce_scatter": "#b45309",
    "all_reduce": "#9f1239",
    "all_to_all": "#5b21b6",
    "send": "#374151",
}


def kind_of(collective: str | None) -> str:
    """The colour of a kind of collective."""
    return next((colour for kind, colour in KINDS.items() if collective and collective.startswith(kind)), INK)


def pieces(axes: str, mesh: Mapping[str, int]) -> list[tuple[str, str | None]]:
    """Named axes cut at the marks of mesh axes: `batch@dp seq` is `batch` plain, `@dp` of dp, ` seq` plain.

    A dimension over several axes, `vocab@tp+tq`, takes the colour of the first.
    """
    found: list[tuple[str, str | None]] = []
    for part in re.split(r"([\w']+@\w+(?:\+\w+)*|partial\([^)]*\))", axes):
        marked = re.search(r"@(\w+)|partial\((\w+)", part)
        axis = next((g for g in marked.groups() if g), None) if marked else None
        if part:
            found.append((part, axis if axis in mesh else None))
    return found


# What a stage of a pipeline does. Their lightness falls from W to F in steps that also tell them apart in grey.
ACTIONS: Mapping[str, str] = {"F": "#174a7c", "B": "#bf5b2c", "I": "#5fbfa5", "W": "#f1d584"}


def lighter(colour: str, share: float) -> str:
    """A colour `#rrggbb` mixed with a share of white."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(part + (255 - part) * share):02x}" for part in parts)


def ink_on(colour: str) -> str:
    """White or dark text, whichever stands out more on a colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return PAPER if 0.3 * red + 0.59 * green + 0.11 * blue < 140 else INK


@dataclass(frozen=True)
class Marking:
    """How what was changed is drawn."""

    line: str
    fill: str


MARKS: Mapping[str, Marking] = {
    "added": Marking("#15803d", "#e3f4e8"),
    "removed": Marking("#b42318", "#fdeceb"),
    "changed": Marking("#b45309", "#fdf3e1"),
    "kept": Marking("#b6bdc8", "#ffffff"),
}

# What a rank's memory holds.
MEMORY: Mapping[str, str] = {
    "parameters": "#174a7c",
    "gradients": "#bf5b2c",
    "moments": "#5fbfa5",
    "buffers": "#f1d584",
}
