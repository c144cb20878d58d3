"""What the ops of a mixture of experts do to axes.

Rows by expert are one axis, `(experts batch seq topk 1/experts)`: as many rows as tokens have choices, and how many an
expert gets is known to the data alone. It can be cut by what its tokens are cut by, or by experts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy

from graphpar.ir.graph import Node
from graphpar.names.atoms import Atoms, Product, Rows
from graphpar.names.signature import Axes, Signature


def route(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """The choices of each token become rows by expert."""
    chosen = operands[0]
    for kept in operands[1:]:
        for own, other in zip(chosen, kept, strict=True):
            atoms.unify(own, other)
    count = node.attrs["experts"]
    experts, share = atoms.new(count), atoms.new(sympy.Rational(1, count), constant=True)
    tokens = tuple(a for axis in chosen[:-1] for a in axis)
    atoms.rows[share] = Rows(experts, tokens, chosen[-1])
    return Signature(tuple(operands), ((experts, *tokens, *chosen[-1], share),))


def dispatch(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """A row for each choice of a token."""
    x, (rows,) = operands
    _same_tokens(x[:-1], rows, atoms)
    return Signature(tuple(operands), (rows, x[-1]))


def expert_linear(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """Each row with the matrix of its expert."""
    (rows, size), (experts, *matrix), _ = operands
    before, after = matrix if node.attrs["transposed"] else matrix[::-1]
    atoms.unify(experts, rows[:1])
    left, right = atoms.unify(size, before)
    summed = frozenset(atoms.resolve(size))
    return Signature(tuple(operands), (rows, after), summed, frozenset([*left, *right]))


def expert_bias(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """The bias of each row's expert added."""
    (rows, size), (experts, own), _ = operands
    atoms.unify(experts, rows[:1])
    left, right = atoms.unify(size, own)
    return Signature(tuple(operands), (rows, size), whole=frozenset([*left, *right]))


def combine(node: Node, operands: Sequence[Axes], atoms: Atoms) -> Signature:
    """The weighted sum over the rows of a token."""
    rows, size = operands[0]
    tokens = tuple(atoms.axis(s) for s in node.shape[:-1])
    _same_tokens(tokens, rows, atoms)
    topk = atoms.rows[rows[-1]].topk
    if len(operands) == 3:
        weights = operands[1]
        _same_tokens(weights[:-1], rows, atoms)
        atoms.unify(weights[-1], topk)
    return Signature(tuple(operands), (*tokens, size), frozenset(atoms.resolve(topk)))


def _same_tokens(axes: Sequence[Product], rows: Product, atoms: Atoms) -> None:
    atoms.unify([a for axis in axes for a in axis], atoms.rows[rows[-1]].tokens)


EXPERTS: dict[str, Callable[[Node, Sequence[Axes], Atoms], Signature]] = {
    "route": route,
    "dispatch": dispatch,
    "expert_linear": expert_linear,
    "expert_bias": expert_bias,
    "combine": combine,
}
