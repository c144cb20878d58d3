"""What the demo starts from: a folder of its own, a model's configuration, and text that every machine has."""

from __future__ import annotations

import hashlib
import json
import shutil
import sysconfig
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

MARK = ".graphpar-demo"  # in the folders that the demo made, and so may make anew
TEXT = 4_000_000  # bytes
# What is not part of the library itself, and tables that only a machine reads.
SKIPPED = frozenset({"test", "tests", "site-packages", "dist-packages", "encodings", "pydoc_data", "__phello__"})


@dataclass(frozen=True)
class Material:
    """The folder, the model's folder in it, the text, and how many files the text was taken from."""

    folder: Path
    model: Path
    text: Path
    sources: int


class NotOursError(RuntimeError):
    """The folder holds something that the demo did not make."""


def prepare(folder: Path) -> Material:
    """Make the folder with a `config.json` and a text. Raises NotOursError if it holds something else."""
    _clear(folder)
    config = files("graphpar.demo").joinpath("config.json").read_text(encoding="utf-8")
    model = folder / json.loads(config)["model_type"]
    model.mkdir()
    (model / "config.json").write_text(config, encoding="utf-8")
    text = folder / "text.txt"
    return Material(folder, model, text, write_text(text))


def _clear(folder: Path) -> None:
    if folder.exists():
        if not folder.is_dir() or (any(folder.iterdir()) and not (folder / MARK).is_file()):
            raise NotOursError(f"{folder} is there already and is not from an earlier demo; it is left as it is")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def write_text(path: Path) -> int:
    """Write Python's standard library, up to `TEXT` bytes, into a file. How many of its files that took.

    The order has nothing to do with what the files are about: the end of the text is what the model is tested on.
    """
    root = Path(sysconfig.get_path("stdlib"))
    every = [p for p in root.rglob("*.py") if not SKIPPED & set(p.relative_to(root).parts)]
    written, count = 0, 0
    with path.open("wb") as out:
        for source in sorted(every, key=lambda p: _shuffled(p.relative_to(root))):
            if written >= TEXT:
                break
            written += out.write(source.read_bytes())
            count += 1
    return count


def _shuffled(path: Path) -> bytes:
    return hashlib.sha256(path.as_posix().encode()).digest()
