"""Writing files and folders that are there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """An open file that appears under `path` only when the block ends well, and is on the disk then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    with unfinished.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    settle(path.parent)


def settle(folder: Path) -> None:
    """Return when the names in `folder` are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish_folder(unfinished: Path, path: Path) -> None:
    """Give a finished folder its name, in place of any older one."""
    settle(unfinished)
    shutil.rmtree(path, ignore_errors=True)
    unfinished.rename(path)
    settle(path.parent)


def digest(path: Path) -> bytes:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
