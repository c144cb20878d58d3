"""A model to compile: how it is made, how it is called, and what a build records of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from graphpar.capture.capture import Signature
from graphpar.errors import Span

Kind = Literal["file", "import", "folder"]


@dataclass(frozen=True)
class Source:
    """A model that has been found.

    `title` is how a build calls it, without a path to it; `label` is its class or function, for messages. `paths` are
    the files that it is written in, first the one that finds it: a Python file, or a `config.json`. `forward` is where
    the method that computes the loss is written. `said` are the choices made without being asked, each a sentence.
    """

    title: str
    label: str
    kind: Kind
    object: str
    paths: tuple[Path, ...]
    construct: Callable[[], nn.Module]
    signature: Signature
    forward: Span | None = None
    said: tuple[str, ...] = ()

    def record(self, build: Path) -> dict[str, Any]:
        """What plan.json says of the model; paths are relative to the build, so that both can move together."""
        return {
            "model": self.title,
            "kind": self.kind,
            "object": self.object,
            "path": Path(os.path.relpath(self.paths[0], build)).as_posix(),
            "hash": digest(*self.paths),
            "torch": torch.__version__.partition("+")[0],
        }


def digest(*paths: Path) -> str:
    """A short hash of the bytes of files, one after another."""
    text = hashlib.sha256()
    for path in paths:
        text.update(path.read_bytes())
    return text.hexdigest()[:16]
