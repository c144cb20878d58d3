"""model.py: one class per distinct module of the source, the source's attribute names, a loop for the layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from graphpar.codegen.classes import Class
from graphpar.codegen.forward import AGAIN, CORE, WHOLE, attribute, forward
from graphpar.codegen.layout import broken, columns
from graphpar.codegen.members import as_slice, members, members_of_stage
from graphpar.codegen.parts import Part
from graphpar.codegen.plan_causes import as_cause, place_of
from graphpar.codegen.program import Forward, Line, Program
from graphpar.codegen.tree import Again, Body, Call, LoopCall
from graphpar.codegen.variables import kind_of
from graphpar.errors import Diagnostic, GraphparError, Span
from graphpar.ir.graph import Loop, Node, Tensor, plain


@dataclass(frozen=True)
class Text:
    """A written model.py: its lines' places in the source, and the class of each part's root."""

    text: str
    sources: dict[str, dict[str, Any]]
    roots: tuple[str, ...]


def module(
    parts: Sequence[Part],
    header: str,
    *,
    runtime: str = "graphpar.runtime",
    extra: Sequence[str] = (),
    closing: Callable[[Sequence[str]], Class] | None = None,
) -> Text:
    """The text of model.py, and for each line of a forward method where in the source it comes from.

    `extra` are the lines of further methods of the model's class; `closing`, given the classes of the parts, makes
    one that stands behind them.
    """
    classes: dict[str, Class] = {}
    roots: list[Class] = []
    for part in parts:
        roots.append(_Module(part, list(extra), classes).write(part.root))
    order = [*classes.values(), *([closing([c.name for c in roots])] if closing else [])]
    body = "\n".join(line for c in order for line in ["", "", *c.text()])
    needed = {"Mesh"} | {name for c in order for name in c.imports}
    names = sorted(needed, key=lambda n: (not n[0].isupper(), n))
    head = f"{header}\n{_imports(body, names, runtime)}\n"
    return Text(f"{head}{body}\n", _sources(order, head.count("\n")), tuple(c.name for c in roots))


def _sources(classes: Sequence[Class], before: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    number = before
    for written in classes:
        for line in [None, None, *written.sources()]:
            number += 1
            if line is not None and line.origin is not None and line.origin.file:
                own = [as_cause(cause) for cause in line.causes if cause.role == "own"]
                found[str(number)] = {**place_of(line.origin), **({"causes": own} if own else {})}
    return found


def _imports(text: str, names: Sequence[str], runtime: str) -> str:
    lines = ["import math", ""] if re.search(r"\bmath\.", text) else []
    lines += ["import torch"] if re.search(r"\btorch\.", text) else []
    lines += ["import torch.nn.functional as F"] if re.search(r"\bF\.", text) else []
    lines += ["from torch import Tensor, nn", ""]
    one = f"from {runtime} import {', '.join(names)}"
    if len(one) <= 100:
        return "\n".join([*lines, one])
    return "\n".join([*lines, f"from {runtime} import (", *(f"    {n}," for n in names), ")"])


class _Module:
    """The classes of one part; those that other parts have as well are written once."""

    def __init__(self, part: Part, extra: list[str], classes: dict[str, Class]) -> None:
        self.part = part
        self.program = part.program
        self.graph = part.program.graph
        self.extra = extra
        self.classes = classes
        self.by_path: dict[str, Class] = {}

    # ------------------------------------------------------------ classes

    def write(self, body: Body) -> Class:
        """Write the classes below a body, then its own; equal texts are one class."""
        for item in body.items:
            for child in [item.body] if isinstance(item, Call) else item.bodies if isinstance(item, LoopCall) else []:
                self.write(child)
        made = forward(body, self.program, lambda child: attribute(child.path, body.path))
        methods = self.methods(body, made)
        init, imports = self.init(body, made)
        method = [line for m in methods for line in ["", *columns(m)]][1:]
        places: list[Line | None] = [place for m in methods for place in [None, *broken(m)]][1:]
        more = ["", *self.extra] if body.path == "" and self.extra else []
        lines = [*init, "", *method, *more]
        places = [None] * (len(init) + 1) + places + [None] * len(more)
        module = self.graph.modules[self.graph.members(body.path)[0]]
        shapes = [*map(self.program.shape, body.inputs), *more]
        cls = module.cls + self.part.suffix if self.part.is_around(body.path) else module.cls
        key = _same_but_for_names(cls, init, made, [*shapes, *(m[0].code for m in methods[1:])])
        if key not in self.classes:
            name = self.name_for(cls, body.path)
            self.classes[key] = Class(name, cls, [], lines, (imports | made.imports) - {AGAIN}, places)
        found = self.classes[key]
        spelled = self.spelled(plain(body.path))
        if self.part.is_around(body.path):
            found.stages.append(self.part.number)
        if spelled and spelled not in found.paths:
            found.paths.append(spelled)
        if self.by_path.setdefault(plain(body.path), found) is not found:
            raise GraphparError(_calls_differ(plain(body.path), made))
        self.by_path[body.path] = found
        return found

    def name_for(self, cls: str, path: str) -> str:
        taken = {c.name for c in self.classes.values()}
        if cls not in taken:
            return cls
        last = plain(path).rpartition(".")[2]
        wishes = [_camel(last)] if last.isidentifier() and not self.part.is_around(path) else []
        return next(
            n for n in [*wishes, *(f"{cls}{letter}" for letter in "BCDEFGHIJKLMNOPQRSTUVWXYZ")] if n not in taken
        )

    def spelled(self, path: str) -> str:
        """A path with the members that it stands for as a slice: `layers[0::2].mlp`."""
        for loop in self.graph.loops.values():
            for part in {loop.part(k) for k in loop.kinds}:
                head = f"{loop.path}.{part}"
                if part != "*" and (path == head or path.startswith(f"{head}.")):
                    count = len(loop.kinds) if loop.first is None else None  # a stage has a part of the list
                    return f"{loop.path}{as_slice(loop.members(part), count)}{path[len(head) :]}"
        return path

    # ------------------------------------------------------------ methods

    def methods(self, body: Body, made: Forward) -> list[list[Line]]:
        """The lines of `forward`, and of what it runs again in the backward pass."""
        parts = [i.body for i in body.items if isinstance(i, Again)]
        cores = [(part, forward(part, self.program, lambda child: child.path, made)) for part in parts]
        if cores or self.is_run_again(body):
            made.imports.add(AGAIN)
        found = [self.method(name, part, core) for name, (part, core) in zip([CORE], cores, strict=False)]
        if not self.is_run_again(body):
            return [self.method("forward", body, made), *found]
        call = f"return self.{AGAIN}(self.{WHOLE}, {', '.join(made.arguments)})"
        line = Line(call, ", ".join(map(self.program.shape, body.outputs)), "computed again in backward")
        return [[self.head("forward", body, made), line], self.method(WHOLE, body, made), *found]

    def is_run_again(self, body: Body) -> bool:
        return self.graph.recomputed.get(plain(body.path)) is True

    def method(self, name: str, body: Body, made: Forward) -> list[Line]:
        return [self.head(name, body, made), *made.lines]

    def head(self, name: str, body: Body, made: Forward) -> Line:
        kinds = map(kind_of, body.inputs)
        arguments = ", ".join(["self", *(f"{a}: {kind}" for a, kind in zip(made.arguments, kinds, strict=True))])
        shapes = ", ".join(map(self.program.shape, body.inputs))
        return Line(f"def {name}({arguments}) -> {made.result}:", shapes, indent=1)

    def init(self, body: Body, made: Forward) -> tuple[list[str], set[str]]:
        given = ", layers: range" if self.part.is_given_layers(body.path) else ""
        lines = [Line(f"def __init__(self, mesh: Mesh{given}) -> None:", indent=1), Line("super().__init__()")]
        for attr, names in made.axes.items():
            lines.append(Line(f"self.{attr} = mesh[{', '.join(repr(n) for n in names)}]".replace("'", '"')))
        for attr, names in made.streams.items():
            lines.append(Line(f"self.{attr} = mesh.random({', '.join(repr(n) for n in names)})".replace("'", '"')))
        if AGAIN in made.imports:
            lines.append(Line(f"self.{AGAIN} = mesh.{AGAIN}"))
        imports: set[str] = set()
        lines += _Members(self, body, imports).lines()
        return columns(lines), imports

    def loop_members(self, loop: Loop) -> str:
        names = [self.by_path[f"{loop.path}.{loop.part(k)}"].name for k in loop.kinds]
        return members_of_stage(names) if loop.first is not None else members(names)


class _Members:
    """The lines of `__init__` that make parameters and children."""

    def __init__(self, owner: _Module, body: Body, imports: set[str]) -> None:
        self.owner = owner
        self.graph = owner.graph
        self.body = body
        self.imports = imports
        self.tensors = {n.attrs["name"]: n for n in self.graph.nodes if n.op in ("parameter", "buffer")}

    def lines(self) -> list[Line]:
        found: list[Line] = []
        for name in self.children(plain(self.body.path)):
            found += self.member(name, f"self.{name} = ", "", 2)
        return found

    def children(self, path: str) -> list[str]:
        """What a module holds, in the source's order: tensors first, then modules with tensors or bodies below them."""
        prefix = f"{path}." if path else ""
        own = [
            n.removeprefix(prefix) for n in self.tensors if n.startswith(prefix) and "." not in n.removeprefix(prefix)
        ]
        names = [*self.tensors, *map(plain, self.owner.by_path), *self.graph.loops]
        below = {n.removeprefix(prefix).split(".")[0] for n in names if n.startswith(prefix) and n != path}
        real = self.graph.members(path)[0]
        start = f"{real}." if real else ""
        order = [p.removeprefix(start) for p in self.graph.modules if p.startswith(start) and p != real]
        return [*own, *(c for c in order if "." not in c and c in below)]

    def member(self, name: str, head: str, tail: str, indent: int) -> list[Line]:
        path = f"{plain(self.body.path)}.{name}" if self.body.path else name
        return self.at(path, head, tail, indent)

    def at(self, path: str, head: str, tail: str, indent: int) -> list[Line]:
        if path in self.tensors:
            code, comment = self.tensor(self.tensors[path])
            if self.tensors[path].op == "buffer" and head.startswith("self."):
                name = path.rpartition(".")[2]
                persistent = "" if self.info(self.tensors[path]).persistent else ", persistent=False"
                code = code.replace(", persistent=False", "")
                return [Line(f'self.register_buffer("{name}", {code}{persistent})', comment, indent=indent)]
            return [Line(f"{head}{code}{tail}", comment, indent=indent)]
        if path in self.graph.loops:
            return [Line(f"{head}{self.owner.loop_members(self.graph.loops[path])}{tail}", indent=indent)]
        if path in self.owner.by_path:
            given = "mesh, layers" if self.owner.part.is_given_layers(path) else "mesh"
            return [Line(f"{head}{self.owner.by_path[path].name}({given}){tail}", indent=indent)]
        return self.holder(path, head, tail, indent)

    def holder(self, path: str, head: str, tail: str, indent: int) -> list[Line]:
        """A module without a body: it only holds what its caller uses."""
        self.imports.add("Parameters")
        children = self.children(path)
        inner: list[Line] = []
        for child in children:
            key = f'**{{"{child}": ' if child.isdigit() else f"{child}="
            inner += self.at(f"{path}.{child}", key, "}," if child.isdigit() else ",", indent + 1)
        if len(inner) == 1 and not children[0].isdigit():
            line = inner[0]
            return [Line(f"{head}Parameters({line.code.removesuffix(',')}){tail}", line.shape, line.reason, indent)]
        return [Line(f"{head}Parameters(", indent=indent), *inner, Line(f"){tail}", indent=indent)]

    def info(self, node: Node) -> Tensor:
        return self.graph.tensors[self.graph.members(node.attrs["name"])[0]]

    def tensor(self, node: Node) -> tuple[str, str]:
        program, info = self.owner.program, self.info(node)
        local = program.cuts(node)
        sizes = [str(local.axis(a)) for a in node.named]
        options = [f'sharded="{" ".join(axes)}"'] if (axes := _sharding(node, program)) else []
        if node.op == "buffer":
            dtype = f"dtype=torch.{node.dtype}"
            persistent = [] if info.persistent else ["persistent=False"]
            return f"mesh.buffer({', '.join([*sizes, dtype, *persistent])})", program.shape(node)
        options += [f'grad_sum="{" ".join(node.attrs["grad_sum"])}"'] if node.attrs.get("grad_sum") else []
        options += ["trainable=False"] if not info.trainable else []
        padded = [
            f"{f.size} padded to {local.size(f) * local.parts(f)}"
            for a in node.named
            for f in a.factors
            if isinstance(f.size, int) and f.size % local.parts(f)
        ]
        also = [f"also {alias}" for alias in info.aliases]
        comment = program.shape(node) + "".join(f"   {note}" for note in [*padded, *also])
        dtype = [f"dtype=torch.{node.dtype}"] if node.dtype != "float32" else []  # of most: not worth a word each
        return f"mesh.parameter({', '.join([*sizes, *dtype, *options])})", comment


_ASSIGNED = re.compile(r"(\w+(?:, \w+)*) = ")
_NAME = re.compile(r"(?<![\w.])[a-z_]\w*")


def _sharding(node: Node, program: Program) -> list[str]:
    found = {a for axes in program.cuts(node).by_factor.values() for a in axes}
    return [a for a in program.mesh if a in found]


def _same_but_for_names(cls: str, init: Sequence[str], made: Forward, shapes: Sequence[str]) -> str:
    """The text of a class whose values have numbers for names: equal if the classes do the same.

    A name stands for the value that it was given last; what a loop carries keeps its number.
    """
    numbers = {name: number for number, name in enumerate(made.arguments)}
    count = len(numbers)
    found = [cls, *init, *shapes]
    for line in made.lines:
        names = _ASSIGNED.match(line.code)
        value = line.code[names.end() :] if names else line.code
        read = _NAME.sub(lambda m: f"${numbers.get(m[0], m[0])}", value)
        for name in names[1].split(", ") if names and line.indent == 2 else ():
            numbers[name], count = count, count + 1
        given = [numbers.get(name, name) for name in names[1].split(", ")] if names else []
        found.append(f"{given} {read} {line.shape} {line.reason} {line.indent}")
    return "\n".join(found)


def _calls_differ(path: str, made: Forward) -> Diagnostic:
    where = next((line.origin for line in made.lines if line.origin and line.origin.file), None)
    return Diagnostic(
        "calls-differ",
        Span(where.file, where.line, 1, 1) if where else None,
        f"`{path}` is called several times, and this layout gives its calls texts that differ",
        why=("a module has one forward method: what it is given and what it gives must lie alike in every call",),
        fix=f"regions:\n  - at: {path}\n    only: true   # no rule, so whole",
        kind="model",
    )


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
