"""Which object of a module is the model."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from graphpar.errors import Diagnostic, GraphparError, Note, Span, did_you_mean, listing
from graphpar.sources.paths import shown


@dataclass(frozen=True)
class Candidate:
    """A class or function that could make the model; `missing` are its arguments that nothing fills."""

    name: str
    value: Callable[..., Any]
    missing: tuple[str, ...]

    @property
    def is_class(self) -> bool:
        """Whether it is a class of modules."""
        return isinstance(self.value, type)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.missing)})"


def pick(module: ModuleType, name: str, model: str) -> Callable[..., Any]:
    """The object called `name`; `model` is what stands before it on the command line.

    Raises GraphparError if there is none, or if it makes no modules.
    """
    value: Any = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if value is None:
        raise GraphparError(_no_such(module, name, model))
    if (
        isinstance(value, nn.Module)
        or not callable(value)
        or (isinstance(value, type) and not issubclass(value, nn.Module))
    ):
        raise GraphparError(_not_a_module(value, name, model, module))
    return value


def only(module: ModuleType, args: Mapping[str, object], model: str) -> Candidate:
    """The one object of a module that can be the model.

    It is the only class of modules that no other class of the file uses and that needs no further argument; else the
    only function that needs none and returns a module. Raises GraphparError, with all that could be meant, otherwise.
    """
    found = candidates(module, args)
    for group in ([c for c in found if c.is_class], [c for c in found if not c.is_class]):
        ready = [c for c in group if not c.missing]
        if len(ready) == 1:
            return ready[0]
        if ready:
            break
    raise GraphparError(_which(module, found, model))


def candidates(module: ModuleType, args: Mapping[str, object]) -> tuple[Candidate, ...]:
    """The classes of modules that no other class uses, and the functions that return a module, in file order."""
    tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
    classes = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.ClassDef) and _is_module_class(getattr(module, node.name, None))
    }
    used = {name for node in classes.values() for name in _names(node) if name != node.name}
    roots = {name for name in classes if name not in used}
    makers = {n.name for n in tree.body if isinstance(n, ast.FunctionDef) and _returns_module(n, classes)}
    names = [n.name for n in tree.body if isinstance(n, (ast.ClassDef, ast.FunctionDef)) and n.name in roots | makers]
    return tuple(_candidate(name, getattr(module, name), args) for name in names)


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _returns_module(function: ast.FunctionDef, classes: Mapping[str, ast.ClassDef]) -> bool:
    """Whether it returns what one of the classes makes, directly or by way of a local name."""
    made = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and _makes(node.value, classes)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    return any(_makes(v, classes) or (isinstance(v, ast.Name) and v.id in made) for v in returned)


def _makes(value: ast.expr, classes: Mapping[str, ast.ClassDef]) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in classes


def _candidate(name: str, value: Callable[..., Any], args: Mapping[str, object]) -> Candidate:
    return Candidate(name, value, missing(value, args))


def missing(value: Callable[..., Any], args: Mapping[str, object]) -> tuple[str, ...]:
    """The arguments that must be given and are not among `args`."""
    return tuple(
        p.name
        for p in inspect.signature(value).parameters.values()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in args
    )


def _no_such(module: ModuleType, name: str, model: str) -> Diagnostic:
    known = [c.name for c in candidates(module, {})] if module.__file__ else []
    message = f"{model} has no `{name}`{did_you_mean(name, vars(module))}"
    return Diagnostic("no-such-object", None, message, notes=(Note(listing(known, "models in it")),))


def _not_a_module(value: object, name: str, model: str, module: ModuleType) -> Diagnostic:
    known = [c.name for c in candidates(module, {})]
    fix = None
    if isinstance(value, nn.Module):
        message = f"`{name}` is a model that has been built already"
        why = "graphpar builds the model itself, without storage: it needs the class, or a function that makes it"
        fix = f"{model}:{type(value).__name__}"
    else:
        kind = (
            f"a class that is no nn.Module (its bases: {_bases(value)})"
            if isinstance(value, type)
            else f"{_article(value)}"
        )
        message = f"`{name}` is {kind}"
        why = "a model is a class of torch.nn.Module, or a function that returns one"
    return Diagnostic("not-a-module", None, message, why=(why,), notes=(Note(listing(known, "models in it")),), fix=fix)


def _bases(value: type) -> str:
    return ", ".join(b.__name__ for b in value.__mro__[1:])


def _article(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _which(module: ModuleType, found: tuple[Candidate, ...], model: str) -> Diagnostic:
    if not found:
        classes = [n for n, v in vars(module).items() if _is_module_class(v) and v.__module__ == module.__name__]
        why = (
            f"its classes of modules use one another: {' '.join(classes)}"
            if classes
            else "it defines no class of modules"
        )
        fix = f"{model}:{classes[-1]}" if classes else None
        return Diagnostic("which-object", None, f"nothing in {model} is plainly the model", why=(why,), fix=fix)
    ready = [c for c in found if not c.missing]
    if ready:
        message = f"{len(ready)} objects in {model} could be the model"
        return Diagnostic("which-object", None, message, fix="\n".join(f"{model}:{c.name}" for c in ready))
    return _needs_arguments(module, found, model)


def _needs_arguments(module: ModuleType, found: tuple[Candidate, ...], model: str) -> Diagnostic:
    last = found[-1]
    arguments = ", ".join(f"{name}: .." for name in last.missing)
    python = ", ".join(f"{name}=.." for name in last.missing)
    notes = tuple(Note(f"{c} needs {' '.join(c.missing)}", place(c.value)) for c in found)
    return Diagnostic(
        "which-object",
        None,
        f"nothing in {model} can be built without arguments",
        notes=notes,
        fix=f"in the spec:  model: {{object: {last.name}, args: {{{arguments}}}}}\n"
        f"or in the file:  def build(): return {last.name}({python})",
    )


def place(value: Callable[..., Any]) -> Span | None:
    """Where a class or function is written."""
    try:
        file = inspect.getsourcefile(value)
        lines, line = inspect.getsourcelines(value)
    except (OSError, TypeError):
        return None
    if file is None:
        return None
    first = next((i for i, text in enumerate(lines) if not text.lstrip().startswith("@")), 0)
    text = lines[first]
    indent = len(text) - len(text.lstrip())
    return Span(shown(file), line + first, indent + 1, len(text.rstrip()) - indent)
