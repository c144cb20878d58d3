"""Products of each row with a matrix of its own, picked from a stack: `x @ w[chosen]` in its many spellings."""

from __future__ import annotations

from dataclasses import dataclass

from graphpar.ir.graph import Node
from graphpar.rewrite.permuted import picks
from graphpar.rewrite.rowwise import with_shape


@dataclass(frozen=True, slots=True)
class Picked:
    """Matrices picked from a stack `[experts, a, b]` by an index of rows; `turned` if the last two are exchanged."""

    stack: Node
    index: Node
    turned: bool = False


def matrices(node: Node) -> Picked | None:
    """Whether a value is matrices picked from a stack."""
    if node.op == "permute" and (inner := matrices(node.operands[0])) is not None:
        swapped = (*range(node.rank - 2), node.rank - 1, node.rank - 2)
        return Picked(inner.stack, inner.index, not inner.turned) if node.attrs["order"] == swapped else None
    picked = picks(node)
    if picked is None or picked[0].rank != 3:
        return None
    return Picked(*picked)


def matmul(node: Node) -> Node | None:
    """`x @ w[chosen]` for rows x of shape [.., 1, k], and `w[chosen] @ x` for columns of shape [.., k, 1]."""
    a, b = node.operands
    rows = node.shape[:-2]
    if (found := matrices(b)) is not None and found.index.shape == rows and a.shape[:-1] == (*rows, 1):
        return with_shape(_linear(node, a, found, transposed=not found.turned), node.shape)
    if (found := matrices(a)) is not None and found.index.shape == rows and b.shape == (*rows, b.shape[-2], 1):
        return with_shape(_linear(node, b, found, transposed=found.turned), node.shape)
    return None


def einsum(node: Node) -> Node | None:
    """A product that sums one dimension of the picked matrices, and keeps the other one last."""
    left, _, right = node.attrs["equation"].partition("->")
    terms = left.split(",")
    if len(terms) != 2:
        return None
    (a, b), (of_a, of_b) = node.operands, terms
    for x, w, term, stacked in ((a, b, of_a, of_b), (b, a, of_b, of_a)):
        found = matrices(w)
        if found is None or found.turned:
            continue
        rows, (first, second) = stacked[:-2], stacked[-2:]
        for summed, kept in ((first, second), (second, first)):
            if term[-1:] == summed and right == rows + kept and set(term[:-1]) <= set(rows):
                wide = _spread(x, term, rows, found.index, node)
                return None if wide is None else _linear(node, wide, found, transposed=summed == first)
    return None


def _spread(x: Node, term: str, rows: str, index: Node, node: Node) -> Node | None:
    """x with copies along the row dimensions that it lacks."""
    if term[:-1] == rows:
        return x
    if [r for r in rows if r in term] != list(term[:-1]):
        return None
    thin = tuple(s if r in term else 1 for r, s in zip(rows, index.shape, strict=True))
    return Node("expand", (with_shape(x, (*thin, x.shape[-1])),), {}, (*index.shape, x.shape[-1]), x.dtype, node.origin)


def _linear(node: Node, x: Node, found: Picked, *, transposed: bool) -> Node:
    """Each row of x with the matrix of its expert, stored as (in, out) if `transposed`."""
    rows = found.index.shape
    width = found.stack.shape[2 if transposed else 1]
    size = found.stack.shape[1 if transposed else 2]
    args = (with_shape(x, (*rows, size)), found.stack, found.index)
    return Node("indexed_linear", args, {"transposed": transposed}, (*rows, width), node.dtype, node.origin)
