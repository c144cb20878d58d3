"""What a captured graph must have: every trainable parameter, and no size that depends on data."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sympy
from sympy.core.relational import Relational

from graphpar.capture.capture import BATCH, SEQ, Captured
from graphpar.errors import Diagnostic, Note
from graphpar.ir.graph import Graph, Node
from graphpar.sources.frames import whole_line
from graphpar.sources.paths import shown

_FREE = {BATCH, SEQ}


def check(captured: Captured) -> list[Diagnostic]:
    """Everything that keeps a captured graph from being the whole training program."""
    return [*_sizes_from_data(captured.graph), *_unused(captured.graph, assumed(captured))]


def fixed_sizes(captured: Captured) -> Iterable[tuple[str, int]]:
    """Conditions that leave batch or seq a single value: the dimension and the value."""
    for assumption in captured.assumptions:
        condition: Any = assumption.condition
        if isinstance(condition, sympy.Eq) and condition.free_symbols <= _FREE:
            relation: Any = condition
            difference = sympy.expand(relation.lhs - relation.rhs)
            yield from ((str(s), value) for s in (BATCH, SEQ) if (value := _root(difference, s)) is not None)


def _root(difference: Any, symbol: sympy.Symbol) -> int | None:
    """The number for which an expression that is linear in `symbol` is zero, if it is a number."""
    if symbol not in difference.free_symbols or not difference.is_polynomial(symbol):
        return None
    by_power = sympy.Poly(difference, symbol).all_coeffs()
    if len(by_power) != 2:
        return None
    root = sympy.cancel(-by_power[1] / by_power[0])
    return int(root) if isinstance(root, sympy.Integer) else None


def assumed(captured: Captured) -> tuple[str, ...]:
    """What the graph takes for granted of batch and seq, as sentences.

    That a size is not some number only says which of two equal ways torch took to compute the same: it binds nobody.
    """
    found: dict[str, None] = {}
    unequal = {a.condition for a in captured.assumptions if isinstance(a.condition, sympy.Ne)}
    for assumption in captured.assumptions:
        condition: Any = assumption.condition
        if isinstance(condition, sympy.Ne) or _follows(condition, unequal):
            continue
        if isinstance(condition, Relational) and condition.free_symbols <= _FREE:
            relation: Any = condition
            where = f" ({shown(assumption.file)}:{assumption.line})" if assumption.file else ""
            found[f"captured for {relation.lhs} {relation.rel_op} {relation.rhs}{where}"] = None
    return tuple(found)


def _follows(condition: Any, unequal: Collection[Any]) -> bool:
    """Whether a least size is only what the export has beside unequal sizes: at least 2, and not 2, is at least 3."""
    if not isinstance(condition, sympy.Ge) or not isinstance(condition.args[1], sympy.Integer):
        return False
    size, least = condition.args[0], int(condition.args[1])
    while least > 2 and (sympy.Ne(size, least - 1) in unequal):
        least -= 1
    return least <= 2


def _unused(graph: Graph, assumed: Iterable[str]) -> Iterable[Diagnostic]:
    used = {n for node in graph.nodes if node.op == "parameter" for n in graph.members(node.attrs["name"])}
    unused = [t for t in graph.tensors.values() if t.trainable and t.name not in used]
    if not unused:
        return
    listed = "\n".join(f"{t.name}  {list(t.shape)}" for t in unused)
    many = f"{len(unused)} parameters take" if len(unused) > 1 else "a parameter takes"
    yield Diagnostic(
        "unused-parameter",
        None,
        f"{many} no part in the loss",
        why=(*listed.splitlines(), "they get no gradient, so training would never change them"),
        notes=tuple(Note(text) for text in assumed),
        fix="take them out of the model, use them, or say that they are not trained: parameter.requires_grad_(False)",
        kind="model",
    )


def _sizes_from_data(graph: Graph) -> Iterable[Diagnostic]:
    for node in graph.nodes:
        if any(_symbols(s) - _FREE for s in node.shape):
            yield _from_data(node)
            return  # what follows has the size from here


def _symbols(size: object) -> set[sympy.Basic]:
    return set(size.free_symbols) if isinstance(size, sympy.Expr) else set()


def _from_data(node: Node) -> Diagnostic:
    file, line = node.origin.file, node.origin.line
    place = whole_line(file, line) if file else None
    where = f" in {node.origin.module}" if node.origin.module else ""
    return Diagnostic(
        "size-from-data",
        place,
        f"the size of a tensor depends on the data{where}",
        why=(
            "x[mask] has as many rows as the mask has true elements, x[:n.item()] as many as n says",
            "each rank has a part of the tokens, so the ranks would have different sizes, which no collective allows",
        ),
        fix="keep every row, and mask: torch.where(mask, x, 0), or labels of -100 where a position is not to count",
        kind="model",
    )
