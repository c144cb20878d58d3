"""Passes and specs by name: the shipped ones, then those in folders that the user adds.

A pass is a file `NAME.py`, a spec a file `NAME.yaml`; the file's name is the whole registration. Nothing imports a
pass, so a user's pass takes the very same way in as a shipped one.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from graphpar.errors import Diagnostic, GraphparError, Note, did_you_mean, listing

PACKAGE = "graphpar.passes"


def passes(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Every pass by name, with its file.

    Raises GraphparError if a folder does not exist, or if two folders have a pass of the same name.
    """
    return _index("pass", "passes", ".py", folders)


def specs(folders: Iterable[Path] = ()) -> dict[str, Path]:
    """Every spec by name, with its file. Raises GraphparError as `passes` does."""
    return _index("spec", "specs", ".yaml", folders)


def load_pass(name: str, folders: Iterable[Path] = ()) -> ModuleType:
    """The module of the pass called `name`, executed once, known to Python as `graphpar.passes.NAME`.

    Raises GraphparError if there is no such pass. What the file itself raises is passed on.
    """
    path = _find("pass", "passes", name, passes(folders))
    module_name = f"{PACKAGE}.{name}"
    loaded = sys.modules.get(module_name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    return _execute(module_name, path)


def find_spec(name: str, folders: Iterable[Path] = ()) -> Path:
    """The file of the spec called `name`. Raises GraphparError if there is none."""
    return _find("spec", "specs", name, specs(folders))


def shipped(folder: str) -> Path | None:
    """Where `passes` or `specs` of graphpar itself lie: inside the package if installed, beside it in a checkout.

    The folder beside the package counts only next to our `pyproject.toml`, so that an unrelated package of that name in
    site-packages is never taken for ours.
    """
    package = Path(__file__).resolve().parent
    inside, beside = package / folder, package.parent / folder
    if inside.is_dir():
        return inside
    return beside if beside.is_dir() and (package.parent / "pyproject.toml").is_file() else None


def _index(kind: str, folder: str, suffix: str, folders: Iterable[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    ours = shipped(folder)
    for directory in ([ours] if ours else []) + [Path(f).resolve() for f in folders]:
        if not directory.is_dir():
            raise GraphparError(Diagnostic("GP080", None, f"there is no folder {directory} to take a {kind} from"))
        for path in sorted(directory.glob(f"*{suffix}")):
            if not path.name.startswith("_"):
                _add(kind, found, path)
    return found


def _add(kind: str, found: dict[str, Path], path: Path) -> None:
    other = found.setdefault(path.stem, path)
    if other != path:
        raise GraphparError(
            Diagnostic(
                "GP081",
                None,
                f"two files are called {kind} `{path.stem}`",
                why=(f"{other}", f"{path}", "a name must say which one is meant"),
                fix=f"rename {path.name}",
            )
        )


def _find(kind: str, plural: str, name: str, known: dict[str, Path]) -> Path:
    if name in known:
        return known[name]
    raise GraphparError(
        Diagnostic(
            "GP082",
            None,
            f"no {kind} is called `{name}`{did_you_mean(name, known)}",
            notes=(Note(listing(sorted(known), plural)),),
        )
    )


def _execute(module_name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:  # cannot happen for a file that ends in .py
        raise ImportError(f"cannot load {path}", name=module_name, path=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # before it runs: a dataclass looks its own module up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module
