"""From DOT to a file that can be looked at, by graphviz's `dot`."""

from __future__ import annotations

from pathlib import Path

import graphviz

FORMATS = ("svg", "png", "pdf")
SECONDS = 120  # a picture is a few hundred nodes: `dot` takes less than a second


class NoDotError(RuntimeError):
    """Graphviz's `dot` is not installed."""


def render(text: str, path: Path) -> None:
    """Draw a DOT text into `path`, whose suffix says how. Raises NoDotError if there is no `dot`."""
    kind = path.suffix.removeprefix(".")
    if kind == "png":
        text = text.replace("digraph build {", "digraph build {\n  graph [dpi=144]", 1)
    try:
        picture = graphviz.Source(text).pipe(format=kind)
    except graphviz.ExecutableNotFound as error:
        raise NoDotError("graphviz's `dot` is not installed") from error
    path.write_bytes(picture)
