"""A model's Python file, or importable module, as a module object."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from graphpar.errors import Diagnostic, GraphparError, Note, Span, did_you_mean
from graphpar.sources.frames import innermost
from graphpar.sources.paths import shown

FORMS = "a model is one of: model.py   model.py:GPT   package.module:GPT   a folder with a config.json"


def load_file(path: Path) -> ModuleType:
    """Run a Python file as a module, its folder searched for what it imports.

    Raises GraphparError if there is no such file or if it fails.
    """
    path = path.resolve()
    if not path.is_file():
        raise GraphparError(_missing(path))
    name = _module_name(path)
    search(path.parent)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise GraphparError(Diagnostic("no-such-model", None, f"{shown(path)} is no Python file"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: a dataclass looks its own module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise GraphparError(_failed(shown(path), error, path)) from error
    return module


def load_module(name: str) -> ModuleType:
    """Import a module by its dotted name, the working directory included. Raises GraphparError as `load_file` does."""
    search(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            message = f"there is no file, folder or Python module called {error.name}"
            raise GraphparError(Diagnostic("no-such-model", None, message, notes=(Note(FORMS),))) from error
        raise GraphparError(_failed(name, error, None)) from error
    except Exception as error:
        raise GraphparError(_failed(name, error, None)) from error


def search(folder: Path) -> None:
    """Let Python find modules in a folder, before all others."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _module_name(path: Path) -> str:
    """The file's own name, as its neighbours would import it, unless Python knows another module by it."""
    known = path.stem in sys.modules or (path.stem.isidentifier() and importlib.util.find_spec(path.stem) is not None)
    own = path.stem.isidentifier() and not known
    return path.stem if own else f"model_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def _missing(path: Path) -> Diagnostic:
    if path.is_dir():
        return Diagnostic("no-such-model", None, f"{shown(path)} is a folder, and a Python file was expected")
    if not path.parent.is_dir():
        return Diagnostic("no-such-model", None, f"there is no folder {shown(path.parent)}")
    others = sorted(p.name for p in path.parent.glob("*.py"))
    message = f"there is no file {shown(path)}{did_you_mean(path.name, others)}"
    where = "the working directory" if path.parent == Path.cwd() else shown(path.parent)
    notes = (Note(f"Python files in {where}: {' '.join(others)}"),) if 0 < len(others) <= 15 else ()
    return Diagnostic("no-such-model", None, message, notes=notes)


def _failed(what: str, error: Exception, path: Path | None) -> Diagnostic:
    if isinstance(error, SyntaxError) and error.filename:
        span = Span(shown(error.filename), error.lineno or 1, error.offset or 1)
        return Diagnostic("model-import", span, f"not Python: {error.msg}", kind="model")
    frame = innermost(error)
    message = f"importing {what} raised {type(error).__name__}: {error}"
    fix = None
    if isinstance(error, ImportError) and "relative import" in str(error) and path is not None:
        package = ".".join(path.with_suffix("").parts[-2:])
        fix = f"name it as part of its package, from the folder above: {package}:CLASS"
    elif isinstance(error, ModuleNotFoundError):
        fix = f"install `{error.name}`, or start graphpar where `{error.name}` can be imported"
    return Diagnostic("model-import", frame.span if frame else None, message, fix=fix, kind="model")
