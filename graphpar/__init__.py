"""Compile a single-device PyTorch model and a spec of named dimensions into readable distributed PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphpar.explain.summary import Summary

__version__ = "0.1.0"
__all__ = ["compile"]


def compile(  # noqa: A001 - the word of the command line
    model: str | Path,
    spec: str | Path,
    output: str | Path | None = None,
    *,
    world: int | None = None,
    standalone: bool = False,
    passes: str | Path | None = None,
    force: bool = False,
) -> Summary:
    """Write a distributed program for `model`, laid out as `spec` says, as `graphpar compile` does with the same words.

        print(graphpar.compile("model.py:GPT", "spec.yaml", "build").to_json())

    `output` is the folder, by default build/MODEL-SPEC; `world` the number of ranks, for a mesh with an axis of `rest`;
    `standalone` puts the runtime into the folder; `passes` is a folder with passes of your own; `force` overwrites
    files of an earlier build that were edited since.

    Raises GraphparError with everything that is wrong; then nothing is written.
    """
    from graphpar.builds.make import make

    return make(
        str(model),
        str(spec),
        Path(output) if output else None,
        world=world,
        standalone=standalone,
        passes=Path(passes) if passes else None,
        force=force,
    )
