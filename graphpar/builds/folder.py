"""The folder of a build: what may be overwritten, and writing it so that no half of a build is ever seen."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphpar.errors import Diagnostic, GraphparError, Note

PLAN = "plan.json"


def digest(text: str) -> str:
    """The hash by which an edited file is known."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise GraphparError if a build must not be written here.

    A folder that is there must be empty or an earlier build; its files must be as they were written, unless `force`.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    written = _written(folder)
    if written is None:
        what = "is a folder with something else in it" if folder.is_dir() else "is a file"
        message = f"{folder} {what}, not a build of graphpar, and is left alone"
        raise GraphparError(Diagnostic("not-a-build", None, message, fix="-o another folder"))
    edited = [name for name, hashed in written.items() if _changed(folder / name, hashed)]
    if edited and not force:
        raise GraphparError(_edited(folder, edited))


def write_folder(folder: Path, files: Mapping[str, str], plan: Mapping[str, Any], timed: Mapping[str, str]) -> None:
    """Write a build: every file beside its place first, then all into place, the plan last.

    Files of an earlier build that this one does not have are removed. `timed` are files that are others each time; what
    is done to them is nobody's concern. Raises GraphparError if that is not possible.
    """
    hashed = {name: digest(text) for name, text in files.items() if name != PLAN}
    document = json.dumps({**plan, "files": hashed}, indent=1) + "\n"
    try:
        _write(folder, {**files, **timed, PLAN: document})
    except OSError as error:
        message = f"cannot write {error.filename or folder}: {error.strerror}"
        raise GraphparError(Diagnostic("cannot-write", None, message)) from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, text in files.items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).write_text(text, encoding="utf-8")
        beside.chmod(0o777 & ~_umask())
        if not folder.exists():
            beside.rename(folder)
            return
        stale = set(_written(folder) or ()) - set(files)
        for name in sorted(files, key=lambda n: n == PLAN):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (beside / name).replace(folder / name)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _written(folder: Path) -> dict[str, str] | None:
    """The files of a build with their hashes, from its plan; None if this is no build."""
    try:
        document = json.loads((folder / PLAN).read_text(encoding="utf-8"))
        return dict(document["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _changed(path: Path, hashed: str) -> bool:
    try:
        return digest(path.read_text(encoding="utf-8")) != hashed
    except FileNotFoundError:
        return False
    except (OSError, UnicodeDecodeError):
        return True


def _edited(folder: Path, edited: list[str]) -> Diagnostic:
    many = "files were" if len(edited) > 1 else "file was"
    return Diagnostic(
        "edited-build",
        None,
        f"{len(edited)} {many} edited in {folder} since graphpar wrote it, and would be lost",
        why=tuple(str(folder / name) for name in edited),
        notes=(Note("a build in another folder (-o) keeps them, and `diff -r` then shows what was edited"),),
        fix="--force   # overwrite them",
    )
