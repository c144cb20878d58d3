"""model.py: one class per distinct module of the source, the source's attribute names, a loop for the layers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graphpar.codegen.forward import attribute, forward
from graphpar.codegen.layout import columns, origins
from graphpar.codegen.program import Forward, Line, Program
from graphpar.codegen.tree import Body, Call, LoopCall
from graphpar.errors import Diagnostic, GraphparError, Span
from graphpar.ir.graph import Loop, Node, Origin, Tensor, plain


@dataclass
class Class:
    """One class to be written: the paths it stands for and its text without the name."""

    name: str
    source: str
    paths: list[str]
    lines: list[str]
    imports: set[str]
    origins: list[Origin | None]

    def text(self) -> list[str]:
        """Its lines, the head included."""
        doc = [f'    """{", ".join(self.paths)}"""', ""] if self.paths else []
        return [f"class {self.name}(nn.Module):", *doc, *self.lines]

    def sources(self) -> list[Origin | None]:
        """For each of its lines, where in the source it comes from."""
        return [None] * (len(self.text()) - len(self.lines)) + self.origins


def module(
    root: Body, program: Program, header: str, *, runtime: str = "graphpar.runtime", extra: Sequence[str] = ()
) -> tuple[str, dict[str, dict[str, Any]]]:
    """The text of model.py, and for each line of a forward method where in the source it comes from.

    `extra` are the lines of further methods of the model's class.
    """
    writer = _Module(program, list(extra))
    writer.write(root)
    body = "\n".join(line for c in writer.order for line in ["", "", *c.text()])
    names = sorted({"Mesh"} | writer.imports(), key=lambda n: (not n[0].isupper(), n))
    head = f"{header}\n{_imports(body, names, runtime)}\n"
    return f"{head}{body}\n", _sources(writer.order, head.count("\n"))


def _sources(classes: Sequence[Class], before: int) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    number = before
    for written in classes:
        for origin in [None, None, *written.sources()]:
            number += 1
            if origin is not None and origin.file:
                where = f"{origin.file.rpartition('/')[2]}:{origin.line}"
                found[str(number)] = {"where": where, "module": origin.module}
    return found


def _imports(text: str, names: Sequence[str], runtime: str) -> str:
    lines = ["import torch"] if re.search(r"\btorch\.", text) else []
    lines += ["import torch.nn.functional as F"] if re.search(r"\bF\.", text) else []
    lines += ["from torch import Tensor, nn", ""]
    one = f"from {runtime} import {', '.join(names)}"
    if len(one) <= 100:
        return "\n".join([*lines, one])
    return "\n".join([*lines, f"from {runtime} import (", *(f"    {n}," for n in names), ")"])


class _Module:
    def __init__(self, program: Program, extra: list[str]) -> None:
        self.program = program
        self.graph = program.graph
        self.extra = extra
        self.classes: dict[str, Class] = {}
        self.by_path: dict[str, Class] = {}
        self.bodies: dict[str, Body] = {}
        self.order: list[Class] = []

    # ------------------------------------------------------------ classes

    def write(self, body: Body) -> Class:
        """Write the classes below a body, then its own; equal texts are one class."""
        self.bodies[body.path] = body
        for item in body.items:
            for child in [item.body] if isinstance(item, Call) else item.bodies if isinstance(item, LoopCall) else []:
                self.write(child)
        made = forward(body, self.program, lambda child: attribute(child.path, body.path))
        init, imports = self.init(body, made)
        method, places = self.method(body, made)
        more = ["", *self.extra] if body.path == "" and self.extra else []
        lines = [*init, "", *method, *more]
        places = [None] * (len(init) + 1) + places + [None] * len(more)
        module = self.graph.modules[self.graph.members(body.path)[0]]
        shapes = [*map(self.program.shape, body.inputs), *more]
        key = _same_but_for_names(module.cls, init, made, shapes)
        if key not in self.classes:
            name = self.name_for(module.cls, body.path)
            self.classes[key] = Class(name, module.cls, [], lines, imports | made.imports, places)
            self.order.append(self.classes[key])
        found = self.classes[key]
        spelled = self.spelled(plain(body.path))
        if body.path and spelled not in found.paths:
            found.paths.append(spelled)
        if self.by_path.setdefault(plain(body.path), found) is not found:
            raise GraphparError(_calls_differ(plain(body.path), made))
        self.by_path[body.path] = found
        return found

    def name_for(self, cls: str, path: str) -> str:
        taken = {c.name for c in self.order}
        if cls not in taken:
            return cls
        last = plain(path).rpartition(".")[2]
        wishes = [] if last.startswith("*") or last.isdigit() else [_camel(last)]
        return next(
            n for n in [*wishes, *(f"{cls}{letter}" for letter in "BCDEFGHIJKLMNOPQRSTUVWXYZ")] if n not in taken
        )

    def spelled(self, path: str) -> str:
        """A path with the members that it stands for as a slice: `layers[0::2].mlp`."""
        for loop in self.graph.loops.values():
            for part in {loop.part(k) for k in loop.kinds}:
                head = f"{loop.path}.{part}"
                if part != "*" and (path == head or path.startswith(f"{head}.")):
                    return f"{loop.path}{_slice(loop.members(part), len(loop.kinds))}{path[len(head) :]}"
        return path

    def imports(self) -> set[str]:
        return {name for c in self.order for name in c.imports}

    # ------------------------------------------------------------ methods

    def method(self, body: Body, made: Forward) -> tuple[list[str], list[Origin | None]]:
        arguments = ", ".join(["self", *(f"{a}: Tensor" for a in made.arguments)])
        head = Line(
            f"def forward({arguments}) -> {made.result}:", ", ".join(map(self.program.shape, body.inputs)), indent=1
        )
        return columns([head, *made.lines]), origins([head, *made.lines])

    def init(self, body: Body, made: Forward) -> tuple[list[str], set[str]]:
        lines = [Line("def __init__(self, mesh: Mesh) -> None:", indent=1), Line("super().__init__()")]
        for attr, names in made.axes.items():
            lines.append(Line(f"self.{attr} = mesh[{', '.join(repr(n) for n in names)}]".replace("'", '"')))
        for attr, names in made.streams.items():
            lines.append(Line(f"self.{attr} = mesh.random({', '.join(repr(n) for n in names)})".replace("'", '"')))
        imports: set[str] = set()
        lines += _Members(self, body, imports).lines()
        return columns(lines), imports

    def loop_members(self, loop: Loop) -> str:
        """The members of a loop as an expression whose length does not depend on how many there are."""
        names = [self.by_path[f"{loop.path}.{loop.part(k)}"].name for k in range(len(set(loop.kinds)))]
        if len(set(names)) == 1:
            return f"nn.ModuleList({names[0]}(mesh) for _ in range({len(loop.kinds)}))"
        period = _period(loop.kinds)
        if len(period) < len(loop.kinds):
            cycle = ", ".join(names[k] for k in period)
            times = len(loop.kinds) // len(period)
            return f"nn.ModuleList(block(mesh) for _ in range({times}) for block in ({cycle}))"
        runs = " + ".join(f"[{names[k]}]" + (f" * {n}" if n > 1 else "") for k, n in _runs(loop.kinds))
        return f"nn.ModuleList(block(mesh) for block in {runs})"


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
            return [Line(f"{head}{self.owner.by_path[path].name}(mesh){tail}", indent=indent)]
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


def _slice(members: Sequence[int], count: int) -> str:
    """Indices as a Python slice where they are one, such as [0::2], [3] or [1:11]."""
    if len(members) == 1:
        return f"[{members[0]}]"
    step = members[1] - members[0]
    if list(members) != list(range(members[0], members[-1] + 1, step)):
        return str(list(members))
    stop = "" if members[-1] + step >= count else str(members[-1] + 1)
    return f"[{members[0]}:{stop}]" if step == 1 else f"[{members[0]}:{stop}:{step}]"


def _period(kinds: Sequence[int]) -> Sequence[int]:
    for length in range(1, len(kinds)):
        if len(kinds) % length == 0 and list(kinds) == list(kinds[:length]) * (len(kinds) // length):
            return kinds[:length]
    return kinds


def _runs(kinds: Sequence[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for kind in kinds:
        if found and found[-1][0] == kind:
            found[-1] = (kind, found[-1][1] + 1)
        else:
            found.append((kind, 1))
    return found
