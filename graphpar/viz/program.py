"""model.py of a build, read without running it: the classes, and the statements of their forward methods."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Statement:
    """An assignment or a return; `targets` is empty for a return.

    `reads` and `results` are variables: all that are read, and those behind each result. `selves` are the attributes
    of `self` that it reads, as dotted paths, `functions` the functions it calls, inner ones first. `child` is what it
    calls if it is one call: an attribute of `self`, a loop variable or a function.
    """

    line: int
    code: str
    targets: tuple[str, ...]
    reads: tuple[str, ...]
    results: tuple[tuple[str, ...], ...]
    selves: tuple[str, ...]
    functions: tuple[str, ...]
    child: str | None
    bare: bool  # whether it only names variables
    axes: str
    pending: str
    note: str


@dataclass(frozen=True)
class Loop:
    """A loop over the members of a module list; `variable` stands for the member."""

    line: int
    over: str
    variable: str
    body: tuple[Statement, ...]


Item: TypeAlias = "Statement | Loop"


@dataclass(frozen=True)
class Class:
    """A class of modules. `children` gives the class of each member: one name, or one per member of a module list."""

    name: str
    line: int
    arguments: tuple[tuple[str, str], ...]  # with named axes
    children: Mapping[str, tuple[str, ...]]
    body: tuple[Item, ...]


def read_program(text: str) -> dict[str, Class]:
    """The classes of a model.py by name. Raises SyntaxError if it is not Python."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in classes}
    source = _Source(text, _comments(text))
    return {node.name: _class(node, names, source) for node in classes}


@dataclass(frozen=True)
class _Source:
    text: str
    comments: Mapping[int, str]

    def comment(self, node: ast.stmt) -> str:
        """What stands behind the last line of a statement."""
        return self.comments.get(node.end_lineno or node.lineno, "")

    def code(self, node: ast.stmt) -> str:
        """A statement on one line."""
        words = " ".join((ast.get_source_segment(self.text, node) or "").split())
        return words.replace("( ", "(").replace(", )", ")").replace(" )", ")")


def _comments(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string.removeprefix("#").strip() for t in tokens if t.type == tokenize.COMMENT}


def _class(node: ast.ClassDef, names: set[str], source: _Source) -> Class:
    methods = {m.name: m for m in node.body if isinstance(m, ast.FunctionDef)}
    children = dict(_children(methods["__init__"], names)) if "__init__" in methods else {}
    if "forward" not in methods:
        return Class(node.name, node.lineno, (), children, ())
    forward = methods.get("compute", methods["forward"])  # what is run again in the backward pass
    arguments = [a.arg for a in forward.args.args[1:]]
    axes = separate(source.comments.get(forward.lineno, ""))
    paired = zip(arguments, axes if len(axes) == len(arguments) else [""] * len(arguments), strict=True)
    return Class(node.name, node.lineno, tuple(paired), children, tuple(_items(forward.body, source)))


# ---------------------------------------------------------------- what a class holds


def _children(init: ast.FunctionDef, names: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for item in init.body:
        match item:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=attr)], value=value):
                yield from _below(attr, value, names)
            case _:
                pass


def _below(path: str, value: ast.expr, names: set[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The modules made by an expression: one, a list of them, or those that a holder of parameters has."""
    match value:
        case ast.Call(func=ast.Name(id=name)) if name in names:
            yield path, (name,)
        case ast.Call(func=ast.Attribute(attr="ModuleList"), args=[members]):
            yield path, tuple(_members(members, {}))
        case ast.Call(func=ast.Attribute(attr="ModuleDict"), args=[ast.DictComp(value=made, generators=[of])]):
            yield path, tuple(_members_of_stage(made, of))
        case ast.Call(func=ast.Name(), keywords=keywords):
            for keyword in keywords:
                if keyword.arg is not None:
                    yield from _below(f"{path}.{keyword.arg}", keyword.value, names)
                elif isinstance(keyword.value, ast.Dict):
                    for key, inner in zip(keyword.value.keys, keyword.value.values, strict=True):
                        if isinstance(key, ast.Constant):
                            yield from _below(f"{path}.{key.value}", inner, names)
        case _:
            pass


def _members(node: ast.expr, bound: Mapping[str, str]) -> list[str]:
    """The class of each member of a list, a tuple, a repetition, or a comprehension over such."""
    match node:
        case ast.List(elts=elements) | ast.Tuple(elts=elements):
            return [name for element in elements for name in _members(element, bound)]
        case ast.Name(id=name):
            return [bound.get(name, name)]
        case ast.Call(func=ast.Name() as made):
            return _members(made, bound)
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _members(left, bound) + _members(right, bound)
        case ast.BinOp(op=ast.Mult(), left=left, right=ast.Constant(value=int(times))):
            return _members(left, bound) * times
        case ast.GeneratorExp(elt=element, generators=generators) | ast.ListComp(elt=element, generators=generators):
            return [name for scope in _scopes(generators, bound) for name in _members(element, scope)]
        case _:
            return []


def _members_of_stage(made: ast.expr, of: ast.comprehension) -> list[str]:
    """The class of each layer of a stage; one name if all have the same, however many there are."""
    match of.target, of.iter:
        case ast.Tuple(elts=[_, ast.Name(id=name)]), ast.Call(args=[_, blocks]):
            return [cls for block in _members(blocks, {}) for cls in _members(made, {name: block})]
        case _:
            return _members(made, {})


def _scopes(generators: Sequence[ast.comprehension], bound: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    if not generators:
        yield bound
        return
    first, *rest = generators
    match first:
        case ast.comprehension(iter=ast.Call(func=ast.Name(id="range"), args=[ast.Constant(value=int(times))])):
            for _ in range(times):
                yield from _scopes(rest, bound)
        case ast.comprehension(target=ast.Name(id=name)):
            for member in _members(first.iter, bound):
                yield from _scopes(rest, {**bound, name: member})
        case _:
            pass


# ---------------------------------------------------------------- what a class does


def _items(body: Sequence[ast.stmt], source: _Source) -> Iterator[Item]:
    for node in body:
        match node:
            case ast.For(target=ast.Name(id=variable), iter=iterable):
                inner = tuple(i for i in _items(node.body, source) if isinstance(i, Statement))
                yield Loop(node.lineno, path_of(_listed(iterable)) or "", variable, inner)
            case ast.Assign(targets=[target], value=value):
                yield _statement(node, _names(target), value, source)
            case ast.Return(value=ast.expr() as value):
                yield _statement(node, (), value, source)
            case _:
                pass


def _listed(iterable: ast.expr) -> ast.expr:
    """The list of modules that a loop runs over: the values of a dictionary, of a stage's layers by their index."""
    match iterable:
        case ast.Call(func=ast.Attribute(value=held, attr="values")):
            return held
        case _:
            return iterable


def _statement(node: ast.stmt, targets: tuple[str, ...], value: ast.expr, source: _Source) -> Statement:
    axes, pending, note = _comment(source.comment(node))
    child = path_of(value.func) if isinstance(value, ast.Call) else None
    results = value.elts if isinstance(value, ast.Tuple) else [value]
    chains = [n for n in ast.walk(value) if isinstance(n, ast.Attribute | ast.Subscript)]
    chains.sort(key=lambda n: (n.lineno, n.col_offset))  # as they are read
    paths = [path for n in chains if (path := path_of(n))]
    return Statement(
        line=node.lineno,
        code=source.code(node),
        targets=targets,
        reads=_variables(value),
        results=tuple(_variables(result) for result in results),
        selves=tuple(dict.fromkeys(paths)),
        functions=tuple(_functions(value)),
        child=child,
        bare=all(isinstance(result, ast.Name) for result in results),
        axes=axes,
        pending=pending,
        note=note,
    )


def path_of(node: ast.expr) -> str | None:
    """`self.a.b[0]` as `a.b.0`, a plain variable as its name, and None for anything else."""
    parts: list[str] = []
    while not isinstance(node, ast.Name):
        match node:
            case ast.Attribute(value=inner, attr=attr):
                parts.append(attr)
            case ast.Subscript(value=inner, slice=ast.Constant(value=int(index))):
                parts.append(str(index))
            case _:
                return None
        node = inner
    if node.id != "self":
        return None if parts else node.id
    return ".".join(reversed(parts)) or None


def _names(target: ast.expr) -> tuple[str, ...]:
    elements = target.elts if isinstance(target, ast.Tuple) else [target]
    return tuple(e.id for e in elements if isinstance(e, ast.Name))


def _variables(node: ast.expr) -> tuple[str, ...]:
    found = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id != "self"]
    return tuple(dict.fromkeys(found))


def _functions(node: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        yield from _functions(child)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        yield node.func.id


def _comment(text: str) -> tuple[str, str, str]:
    """Named axes, what is pending, and the rest of a comment."""
    axes, *rest = re.split(r"\s{2,}", text)
    pending = rest.pop(0) if rest and rest[0].startswith("partial(") else ""
    return axes, pending, "  ".join(rest)


def separate(comment: str) -> list[str]:
    """The shapes of several values: split at the commas outside brackets."""
    return [part.strip() for part in re.split(r",\s(?![^(]*\))", comment)] if comment else []
