"""The statements of model.py's forward methods: what each assigns, the comment behind it, and a program that tells."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass

from graphpar.runtime import collectives
from graphpar.verify.shapes import Shape, read_shape

SEE = "_see"  # the function that the watched program calls: (self, line, name, value) -> value
RETURNED = "the returned value"

_MOVES = frozenset(
    name for name, value in vars(collectives).items() if callable(value) and value.__module__ == collectives.__name__
) | {"to_experts", "to_tokens", "own_rows", "all_rows"}
_ROUTED = ("expert_linear", "expert_bias")  # their third operand is a routing, of whatever name


@dataclass(frozen=True)
class Statement:
    """One assignment or return."""

    line: int  # the first
    end: int
    code: str  # on one line, without the comment
    names: tuple[str, ...]
    texts: tuple[str, ...]  # what the comment says of each name
    shapes: tuple[Shape | None, ...]  # the same, as far as it is a shape
    uses: frozenset[str]  # the variables that it reads
    computes: str  # the right-hand side, sizes and constants left out
    moves: str | None  # the variable, if all it does is to hand it through a collective
    is_move: bool


def statements(text: str) -> dict[int, Statement]:
    """The statements of every forward method by their first line."""
    comments = _comments(text)
    lines = text.splitlines()
    found: dict[int, Statement] = {}
    for method in _forwards(ast.parse(text)):
        for node in ast.walk(method):
            if isinstance(node, ast.Assign | ast.Return) and node.value is not None:
                comment = comments.get(node.end_lineno or node.lineno, "")
                found[node.lineno] = _statement(node, comment, lines)
    return dict(sorted(found.items()))


def watched(text: str) -> ast.Module:
    """The program with a call of `SEE` for every value that a forward method assigns or returns."""
    tree = ast.parse(text)
    for method in _forwards(tree):
        method.body = _watch(method.body)
    return ast.fix_missing_locations(tree)


def parameter_line(text: str, cls: str, path: Sequence[str]) -> int | None:
    """Where the constructor of class `cls` makes the parameter that it reaches by `path`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef) and node.name == cls:
            for item in ast.walk(node):
                if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{path[0]}":
                    return _inside(item.value, path[1:])
    return None


def forward_line(text: str, cls: str) -> int | None:
    """Where the forward method of class `cls` begins."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef) and node.name == cls:
            return next((f.lineno for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "forward"), None)
    return None


def named_shape(text: str, line: int) -> str:
    """The comment at a line: named axes, what is pending, and notes."""
    return _comments(text).get(line, "")


def _inside(value: ast.expr, path: Sequence[str]) -> int:
    for step in path:
        if isinstance(value, ast.Call):
            value = next((k.value for k in value.keywords if k.arg == step), value)
    return value.lineno


def _statement(node: ast.Assign | ast.Return, comment: str, lines: Sequence[str]) -> Statement:
    assert node.value is not None
    targets = _names(node.targets[0]) if isinstance(node, ast.Assign) else ()
    count = len(targets) or (len(node.value.elts) if isinstance(node.value, ast.Tuple) else 1)
    names = targets or tuple(RETURNED if count == 1 else f"{RETURNED} {i + 1}" for i in range(count))
    texts = _shape_texts(comment)
    texts = texts * count if len(texts) == 1 else texts
    texts = texts if len(texts) == count else [""] * count
    value = node.value
    is_move = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in _MOVES
    operand = value.args[0] if is_move and isinstance(value, ast.Call) and value.args else None
    moved = operand.id if isinstance(operand, ast.Name) else None
    first = lines[node.lineno - 1] if node.lineno == node.end_lineno else ast.unparse(node)
    code = re.split(r"\s+# ", first)[0].strip()
    return Statement(
        node.lineno,
        node.end_lineno or node.lineno,
        code,
        names,
        tuple(texts),
        tuple(map(read_shape, texts)),
        _uses(value),
        _computes(node),
        moved,
        is_move,
    )


def _uses(value: ast.expr) -> frozenset[str]:
    return frozenset(item.id for item in ast.walk(value) if isinstance(item, ast.Name))


def _computes(node: ast.Assign | ast.Return) -> str:
    copy = ast.parse(ast.unparse(node)).body[0]
    for item in ast.walk(copy):
        if isinstance(item, ast.Constant) and isinstance(item.value, int | float):
            item.value = 0
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Name) and item.func.id in _ROUTED:
            item.args[2] = ast.Name("routing", ast.Load())
    return ast.unparse(copy)


def _names(target: ast.expr) -> tuple[str, ...]:
    if isinstance(target, ast.Name):
        return (target.id,)
    if isinstance(target, ast.Tuple) and all(isinstance(e, ast.Name) for e in target.elts):
        return tuple(e.id for e in target.elts if isinstance(e, ast.Name))
    return ()


def _shape_texts(comment: str) -> list[str]:
    """The shapes in a comment, without the reason behind them."""
    head, *rest = re.split(r"\s{2,}", comment, maxsplit=2)
    pending = f"   {rest[0]}" if rest and rest[0].startswith("partial(") else ""
    return [part.strip() for part in re.split(r",\s(?![^(]*\))", head + pending)]


def _comments(text: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {t.start[0]: t.string.removeprefix("#").strip() for t in tokens if t.type == tokenize.COMMENT}


def _forwards(tree: ast.Module) -> list[ast.FunctionDef]:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return [
        node for cls in classes for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "forward"
    ]


def _watch(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.For):
            node.body = _watch(node.body)
        found += _watched(node)
    return found


def _watched(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, ast.Assign) and (names := _names(node.targets[0])):
        # the name is bound again: a watched value is a tensor object of its own
        again = [
            ast.Assign([ast.Name(name, ast.Store())], _see(node.lineno, name, ast.Name(name, ast.Load())))
            for name in names
        ]
        return [node, *(ast.copy_location(item, node) for item in again)]
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        node.value.elts = [_see(node.lineno, f"{RETURNED} {i + 1}", e) for i, e in enumerate(node.value.elts)]
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = _see(node.lineno, RETURNED, node.value)
    return [node]


def _see(line: int, name: str, value: ast.expr) -> ast.Call:
    arguments: list[ast.expr] = [ast.Name("self", ast.Load()), ast.Constant(line), ast.Constant(name), value]
    return ast.Call(ast.Name(SEE, ast.Load()), arguments, [])
