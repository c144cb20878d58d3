"""Where in the user's code an exception comes from."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch
from torch import nn

from graphpar.errors import Span
from graphpar.sources.paths import shown

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])
_PYTHON = sysconfig.get_paths()["stdlib"]
_PACKAGES = ("site-packages", "dist-packages")
_TOOLS = ("sympy", "mpmath", "numpy")  # what torch and we compute with: never where a model is written


@dataclass(frozen=True)
class Frame:
    """One call on the way to an exception: the expression that was running, its function, and the module it is of."""

    span: Span
    function: str
    owner: nn.Module | None


def frames(error: BaseException) -> tuple[Frame, ...]:
    """The calls in code that belongs neither to torch, nor to Python, nor to us; outermost first.

    Calls in installed packages count only where there are no others.
    """
    found = list(_frames(error.__traceback__))
    own = [f for f in found if not any(f"/{folder}/" in f.span.file for folder in _PACKAGES)]
    return tuple(own or found)


def innermost(error: BaseException) -> Frame | None:
    """The last call in the user's code."""
    return next(reversed(frames(error)), None)


def _frames(trace: TracebackType | None) -> Iterator[Frame]:
    for entry, (frame, _) in zip(traceback.extract_tb(trace), traceback.walk_tb(trace), strict=True):
        if _foreign(entry.filename):
            continue
        owner = frame.f_locals.get("self")
        yield Frame(_span(entry), entry.name, owner if isinstance(owner, nn.Module) else None)


def ours(error: BaseException) -> bool:
    """Whether it was graphpar, rather than torch, that ran into it."""
    files = [f.f_code.co_filename for f, _ in traceback.walk_tb(error.__traceback__)]
    return next((f.startswith(_OURS + "/") for f in reversed(files) if f.startswith((_OURS + "/", _TORCH + "/"))), True)


def _foreign(file: str) -> bool:
    if file.startswith(("<", _TORCH + "/", _OURS + "/")) or any(f"-packages/{tool}/" in file for tool in _TOOLS):
        return True
    return file.startswith(_PYTHON + "/") and not any(f"/{folder}/" in file for folder in _PACKAGES)


def _span(entry: traceback.FrameSummary) -> Span:
    line, column = entry.lineno or 1, (entry.colno or 0) + 1
    one_line = entry.end_lineno == entry.lineno and entry.end_colno is not None and entry.colno is not None
    return Span(shown(entry.filename), line, column, entry.end_colno - entry.colno if one_line else 10_000)  # type: ignore[operator]


def whole_line(file: str, line: int) -> Span:
    """A line of a file, without its indentation."""
    text = linecache.getline(file, line)
    indent = len(text) - len(text.lstrip())
    return Span(shown(file), line, indent + 1, max(len(text.strip()), 1))


def path_of(owner: nn.Module | None, model: nn.Module | None) -> str:
    """The path of a module in its model; empty for the model itself and where it is unknown."""
    if owner is None or model is None:
        return ""
    return next((name for name, module in model.named_modules() if module is owner), "")
