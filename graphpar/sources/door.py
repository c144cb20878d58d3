"""MODEL on the command line to a `Source`: a Python file, an importable object, or a folder with a config.json."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from graphpar.capture import recipe
from graphpar.errors import Diagnostic, GraphparError, Note, Span
from graphpar.language.schema import ModelSpec
from graphpar.sources import choose
from graphpar.sources.call import call_signature, forward_place
from graphpar.sources.failures import made
from graphpar.sources.files import FORMS, load_file, load_module, search
from graphpar.sources.paths import shown
from graphpar.sources.source import Kind, Source, digest

_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_][\w.]*)?")


def open_model(text: str, spec: ModelSpec | None = None) -> Source:
    """Find the model that `text` stands for; `spec` is the spec's section about it.

    Raises GraphparError if there is no such model, or if it is not plain which object or arguments are meant.
    """
    path, _, name = text.rpartition(":") if ":" in text else (text, "", "")
    wanted = name or (spec.object if spec and spec.object else None)
    if path.endswith(".py"):
        return _from_module(path, "file", load_file(Path(path)), wanted, spec)
    if Path(text).is_dir():
        from graphpar.sources.huggingface import open_folder  # reads a library that takes seconds to import

        return open_folder(text, spec)
    if _DOTTED.fullmatch(text) and not Path(text).exists():
        return _from_module(path, "import", load_module(path), wanted, spec)
    raise GraphparError(_no_such(text))


def reopen(record: Mapping[str, Any], build: Path, spec: ModelSpec | None = None) -> Source:
    """The model that a build was made from, by the `source` entry of its plan.json.

    Raises GraphparError if it is gone or has changed since.
    """
    path = (build / record["path"]).resolve()
    if not path.is_file():
        message = f"the model of this build is no longer at {shown(path)}"
        raise GraphparError(Diagnostic("no-such-model", None, message, kind="check"))
    match record["kind"]:
        case "file":
            source = open_model(f"{path}:{record['object']}", spec)
        case "folder":
            source = open_model(str(path.parent), spec)
        case _:
            name = str(record["model"]).partition(":")[0]
            search(_root(path, name))
            source = open_model(f"{name}:{record['object']}", spec)
    if digest(*source.paths) != record["hash"]:
        message = f"{shown(path)} has changed since this build was made"
        raise GraphparError(Diagnostic("source-changed", None, message, fix="compile it again", kind="check"))
    return source


def _root(path: Path, name: str) -> Path:
    """The folder in which Python finds the module `name` that is written in `path`."""
    depth = name.count(".") + (path.name == "__init__.py")
    return path.parents[depth]


def _from_module(path: str, kind: Kind, module: ModuleType, wanted: str | None, spec: ModelSpec | None) -> Source:
    args = spec.args if spec else {}
    said: tuple[str, ...] = ()
    if wanted is not None:
        name, value = wanted, choose.pick(module, wanted, path)
    else:
        found = choose.only(module, args, path)
        name, value = found.name, found.value
        said = (f"the model is {name}, the only {'class' if found.is_class else 'function'} in {path} that it can be",)
    _check_arguments(name, value, args, spec)

    def construct() -> nn.Module:
        return value(**args)

    cls = value if isinstance(value, type) else type(recipe.build(lambda: made(name, construct)).model)
    signature = call_signature(cls, spec)
    title = f"{Path(path).name if kind == 'file' else path}:{name}"
    return Source(title, name, kind, name, _files(module, value), construct, signature, forward_place(cls), said)


def _files(module: ModuleType, value: Callable[..., Any]) -> tuple[Path, ...]:
    """The module's file, then the object's own if that is another one."""
    files = (module.__file__, inspect.getsourcefile(value))
    return tuple(dict.fromkeys(Path(f).resolve() for f in files if f))


def _check_arguments(name: str, value: Callable[..., Any], args: Mapping[str, object], spec: ModelSpec | None) -> None:
    try:
        inspect.signature(value).bind(**args)
    except TypeError as error:
        span: Span | None = spec.span if spec and args else None
        signature = Note(f"{name}{inspect.signature(value)}", choose.place(value))
        needed = ", ".join(f"{a}: .." for a in choose.missing(value, args))
        fix = f"in the spec:  model: {{object: {name}, args: {{{needed}}}}}" if needed else None
        message = f"{name} cannot be built with these arguments: {error}"
        raise GraphparError(Diagnostic("bad-model-args", span, message, notes=(signature,), fix=fix)) from error


def _no_such(text: str) -> Diagnostic:
    path = Path(text)
    if path.is_file():
        message = f"{text} is neither a Python file nor a folder"
    else:
        message = f"there is no model {text}"
    return Diagnostic("no-such-model", None, message, notes=(Note(FORMS),))
