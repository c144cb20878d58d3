"""Values that depend on sizes alone, element by element, as functions of position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import sympy
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanAtom, BooleanFunction

from graphpar.ir.graph import Graph, Node

Expr: TypeAlias = "sympy.Expr | Boolean"

INDEX = tuple(sympy.Symbol(f"i{k}", integer=True, nonnegative=True) for k in range(8))
_MAX_OPS = 40
_TRUTH = (BooleanFunction, BooleanAtom, Relational)  # a plain sympy.Symbol counts as a Boolean, too


def functions(graph: Graph) -> dict[Node, Expr]:
    """For each value that is a function of position, that function, with INDEX[k] the index along dimension k."""
    found: dict[Node, Expr] = {}
    for node in graph.nodes:
        rule = _EVALUATE.get(node.op)
        if rule is None or any(a not in found for a in node.operands) or node.rank > len(INDEX):
            continue
        expression = rule(node, [found[a] if isinstance(a, Node) else a for a in node.args])
        if expression is not None and len(list(sympy.preorder_traversal(expression))) <= _MAX_OPS:
            found[node] = expression
    return found


def is_causal(expression: Expr, rank: int) -> bool:
    """Whether a mask lets every query see exactly the keys up to its own position."""
    query, key = INDEX[rank - 2], INDEX[rank - 1]
    if not isinstance(expression, Relational) or isinstance(expression, (sympy.Eq, sympy.Ne)):
        return False
    sides: list[Any] = list(expression.args)
    low, high = sides if isinstance(expression, (sympy.Le, sympy.Lt)) else reversed(sides)
    strict = isinstance(expression, (sympy.Lt, sympy.Gt))
    return sympy.expand(low - high) + int(strict) == key - query


def _aligned(node: Node, values: Sequence[Any]) -> list[Any]:
    """The operands' expressions under the result's indices (broadcast from the right)."""
    aligned: list[Any] = []
    for arg, value in zip(node.args, values, strict=True):
        aligned.append(_shift(arg, value, node.rank) if isinstance(arg, Node) else _number(value))
    return aligned


def _shift(arg: Node, value: Expr, rank: int) -> Expr:
    moved = {INDEX[k]: sympy.Integer(0) if arg.shape[k] == 1 else INDEX[k + rank - arg.rank] for k in range(arg.rank)}
    return value.xreplace(moved)  # type: ignore[return-value]


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return sympy.true if value else sympy.false
    if isinstance(value, float):
        return sympy.Integer(int(value)) if value.is_integer() else None
    return sympy.sympify(value)


def _as_int(value: Any) -> Any:
    return sympy.Piecewise((1, value), (0, True)) if isinstance(value, _TRUTH) else value


def _as_bool(value: Any) -> Any:
    return value if isinstance(value, _TRUTH) else _fold_relation(sympy.Ne(value, 0))


def _pointwise(function: Callable[..., Any], convert: Callable[[Any], Any]) -> Callable[[Node, Sequence[Any]], Any]:
    def rule(node: Node, values: Sequence[Any]) -> Any:
        aligned = _aligned(node, values)
        return None if any(v is None for v in aligned) else function(*map(convert, aligned))

    return rule


def _arange(node: Node, values: Sequence[Any]) -> Any:
    start, step = node.attrs["start"], node.attrs["step"]
    if not node.dtype.startswith("int") or not all(isinstance(v, (int, sympy.Integer)) for v in (start, step)):
        return None
    return start + step * INDEX[0]


def _full(node: Node, values: Sequence[Any]) -> Any:
    value = _number(node.attrs["value"])
    return None if value is None else _as_bool(value) if node.dtype == "bool" else value


def _cast(node: Node, values: Sequence[Any]) -> Any:
    if node.dtype == "bool":
        return _as_bool(values[0])
    return _as_int(values[0]) if node.dtype.startswith("int") else None


def _where(node: Node, values: Sequence[Any]) -> Any:
    condition, a, b = _aligned(node, values)
    if a is None or b is None or "float" in node.dtype:
        return None
    return sympy.Piecewise((_as_int(a), _as_bool(condition)), (_as_int(b), True))


def _moved(position: Callable[[Node], Mapping[int, Any]]) -> Callable[[Node, Sequence[Any]], Any]:
    """A shape op: the operand at another index; `position` gives it per dimension of the operand."""

    def rule(node: Node, values: Sequence[Any]) -> Any:
        return values[0].xreplace({INDEX[k]: sympy.sympify(v) for k, v in position(node).items()})

    return rule


def _unsqueeze(node: Node) -> Mapping[int, Any]:
    at = node.attrs["dim"]
    return {k: INDEX[k if k < at else k + 1] for k in range(node.rank - 1)}


def _expand(node: Node) -> Mapping[int, Any]:
    (x,) = node.operands
    lead = node.rank - x.rank
    return {k: 0 if x.shape[k] == 1 else INDEX[k + lead] for k in range(x.rank)}


def _permute(node: Node) -> Mapping[int, Any]:
    return {d: INDEX[k] for k, d in enumerate(node.attrs["order"])}


def _slice(node: Node) -> Mapping[int, Any]:
    d = node.attrs["dim"]
    return {k: node.attrs["start"] + node.attrs["step"] * INDEX[k] if k == d else INDEX[k] for k in range(node.rank)}


def _select(node: Node) -> Mapping[int, Any]:
    d = node.attrs["dim"]
    return {k: node.attrs["index"] if k == d else INDEX[k if k < d else k - 1] for k in range(node.rank + 1)}


def _reshape(node: Node, values: Sequence[Any]) -> Any:
    (x,) = node.operands
    old = [k for k in range(x.rank) if x.shape[k] != 1]
    new = [k for k in range(node.rank) if node.shape[k] != 1]
    if [x.shape[k] for k in old] != [node.shape[k] for k in new]:
        return None
    moved = {INDEX[k]: sympy.Integer(0) for k in range(x.rank)} | {
        INDEX[a]: INDEX[b] for a, b in zip(old, new, strict=True)
    }
    return values[0].xreplace(moved)


def _diff(node: Node, values: Sequence[Any]) -> Any:
    index = INDEX[node.attrs["dim"]]
    x = _as_int(values[0])
    step = sympy.expand(x - x.xreplace({index: index - 1}))
    if len(values) == 1:
        return sympy.expand(x.xreplace({index: index + 1}) - x)
    prepend = _as_int(_shift(node.operands[1], values[1], node.rank))
    first = sympy.expand((x - prepend).xreplace({index: sympy.Integer(0)}))
    return step if first == step.xreplace({index: sympy.Integer(0)}) and not step.has(index) else None


def _cumsum(node: Node, values: Sequence[Any]) -> Any:
    index = INDEX[node.attrs["dim"]]
    x = _as_int(values[0])
    return None if x.has(index) else x * (index + 1)


def _index(node: Node, values: Sequence[Any]) -> Any:
    x, *indices = node.args
    if not isinstance(x, Node) or len(indices) != x.rank or not all(isinstance(i, Node) for i in indices):
        return None
    at = [_shift(i, v, node.rank) for i, v in zip(indices, values[1:], strict=True) if isinstance(i, Node)]
    return values[0].xreplace({INDEX[k]: a for k, a in enumerate(at)})


def _triangle(compare: Callable[..., Any]) -> Callable[[Node, Sequence[Any]], Any]:
    def rule(node: Node, values: Sequence[Any]) -> Any:
        row, column = INDEX[node.rank - 2], INDEX[node.rank - 1]
        inside = compare(column, row + node.attrs["diagonal"])
        x = values[0]
        if isinstance(x, _TRUTH):
            return sympy.And(x, inside)
        return sympy.Piecewise((x, inside), (0, True))

    return rule


def _buffer(node: Node, values: Sequence[Any]) -> Any:
    """A buffer that holds a triangle of ones says so."""
    pattern = node.attrs.get("pattern")
    if pattern != "tril":
        return None
    inside = sympy.Le(INDEX[node.rank - 1], INDEX[node.rank - 2])
    return inside if node.dtype == "bool" else sympy.Piecewise((1, inside), (0, True))


def _compare(relation: Callable[..., Any]) -> Callable[..., Any]:
    def function(a: Any, b: Any) -> Any:
        return _fold_relation(relation(a, b))

    return function


def _fold_relation(relation: Any) -> Any:
    """`Piecewise((1, c), (0, True)) == 0` is `not c`."""
    if (
        isinstance(relation, (sympy.Eq, sympy.Ne))
        and isinstance(relation.lhs, sympy.Piecewise)
        and relation.rhs.is_number
    ):
        cases: Any = relation.lhs.args
        branches = [(relation.func(value, relation.rhs), condition) for value, condition in cases]
        if all(value in (sympy.true, sympy.false) for value, _ in branches) and len(branches) == 2:
            (first, condition), (second, _) = branches
            return first if first == second else condition if first == sympy.true else sympy.Not(condition)
    return relation


_EVALUATE: dict[str, Callable[[Node, Sequence[Any]], Any]] = {
    "arange": _arange,
    "full": _full,
    "buffer": _buffer,
    "cast": _cast,
    "where": _where,
    "add": _pointwise(lambda a, b: a + b, _as_int),
    "sub": _pointwise(lambda a, b: a - b, _as_int),
    "mul": _pointwise(lambda a, b: a * b, _as_int),
    "neg": _pointwise(lambda a: -a, _as_int),
    "eq": _pointwise(_compare(sympy.Eq), _as_int),
    "ne": _pointwise(_compare(sympy.Ne), _as_int),
    "lt": _pointwise(sympy.Lt, _as_int),
    "le": _pointwise(sympy.Le, _as_int),
    "gt": _pointwise(sympy.Gt, _as_int),
    "ge": _pointwise(sympy.Ge, _as_int),
    "and": _pointwise(sympy.And, _as_bool),
    "or": _pointwise(sympy.Or, _as_bool),
    "logical_not": _pointwise(sympy.Not, _as_bool),
    "unsqueeze": _moved(_unsqueeze),
    "expand": _moved(_expand),
    "permute": _moved(_permute),
    "slice": _moved(_slice),
    "select": _moved(_select),
    "reshape": _reshape,
    "diff": _diff,
    "cumsum": _cumsum,
    "index": _index,
    "tril": _triangle(sympy.Le),
    "triu": _triangle(sympy.Ge),
}
