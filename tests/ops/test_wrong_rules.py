"""Rules that are wrong in ways that a person could get wrong: cutting ops by them must not go unnoticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from graphpar.errors import GraphparError
from graphpar.names.signature import Signature
from graphpar.ops import shapes
from graphpar.ops.rules import LINEAR, RULES, elementwise, reduce
from graphpar.ops.shapes import SHAPES
from graphpar.place import cuttable
from tools.ops.case import Case, row
from tools.ops.run import difference
from tools.ops.shardings import programs
from tools.ops.table import of

SQUARE = row("matmul", "x @ y", "x 4 4; y 4 4")


def noticed(cases: list[Case]) -> bool:
    """Whether some way to cut a case fails, or computes something else."""
    return any(fails(case) for case in cases)


def fails(case: Case) -> bool:
    try:
        return any(not difference(program) <= 1e-12 for program in programs(case))
    except (RuntimeError, ValueError, IndexError, AssertionError, GraphparError):  # shapes that do not fit
        return True


def rule(op: str, wrong: Any) -> tuple[str, Callable[[pytest.MonkeyPatch], None], list[Case]]:
    return op, lambda patch: patch.setitem(RULES, op, wrong), of(op)


def shape(op: str, wrong: Any) -> tuple[str, Callable[[pytest.MonkeyPatch], None], list[Case]]:
    return op, lambda patch: patch.setitem(SHAPES, op, wrong), of(op)


def linear(op: str, *groups: tuple[int, ...]) -> tuple[str, Callable[[pytest.MonkeyPatch], None], list[Case]]:
    return op, lambda patch: patch.setitem(LINEAR, op, groups), of(op)


def chosen_from_a_part(node: Any) -> str:
    letters = "abcdefgh"[: node.rank]
    return f"{' '.join(letters)} -> {' '.join('+' if i == node.attrs['dim'] else a for i, a in enumerate(letters))}"


def gathered_from_a_part(node: Any) -> str:
    letters = "abcdefgh"[: node.rank]
    index = " ".join("z" if i == node.attrs["dim"] else a for i, a in enumerate(letters))
    return f"{' '.join(letters)}, {index} -> {index}"


def inverted(node: Any) -> str:
    letters = "abcdefgh"[: node.rank]
    back = [node.attrs["order"].index(d) for d in range(node.rank)]
    return f"{' '.join(letters)} -> {' '.join(letters[d] for d in back)}"


def same_axes(node: Any, operands: Any, atoms: Any) -> Signature:
    return Signature(tuple(operands), operands[0])


def minor_pieces(node: Any, operands: Any, atoms: Any) -> Signature:
    (own,) = operands
    dim = node.attrs["dim"]
    rest = atoms.axis(node.shape[dim])
    atoms.unify((*rest, atoms.new(node.attrs["count"], constant=True)), own[dim])
    return Signature((own,), (*own[:dim], rest, *own[dim + 1 :]))


def column_major(node: Any, operands: Any, atoms: Any) -> Signature:
    (own,) = operands
    result = tuple(atoms.axis(s) for s in node.shape)
    left, right = atoms.unify([a for x in reversed(own) for a in x], [a for x in reversed(result) for a in x])
    return Signature((own,), result, frozenset(), frozenset([*left, *right]))


def tiled(node: Any, operands: Any, atoms: Any) -> Signature:
    (own,) = operands
    dim = node.attrs["dim"]
    return Signature((own,), (*own[:dim], (atoms.new(node.attrs["repeats"]), *own[dim]), *own[dim + 1 :]))


def first_of_all(node: Any, operands: Any, atoms: Any) -> Signature:
    dim = node.attrs["dim"]
    for other in operands[1:]:
        for i, axis in enumerate(other):
            if i != dim:
                atoms.unify(operands[0][i], axis)
    grown = (*operands[0][dim], atoms.new(len(operands), constant=True))
    return Signature(tuple(operands), (*operands[0][:dim], grown, *operands[0][dim + 1 :]))


def every_key_its_own(node: Any, operands: Any, atoms: Any) -> Signature:
    right = shapes.sdpa(node, operands, atoms)
    q, k, *rest = right.operands
    keys = q[:-2] + (q[-2],) + k[-1:]
    return Signature((q, keys, *rest), right.result, right.summed, frozenset(atoms.resolve(q[-1])))


def depth_free(node: Any, operands: Any, atoms: Any) -> Signature:
    right = shapes.sdpa(node, operands, atoms)
    return Signature(
        right.operands, right.result, right.summed | frozenset(atoms.resolve(operands[0][-1])), frozenset()
    )


def causal_anywhere(patch: pytest.MonkeyPatch) -> None:
    from graphpar.place.place import _Placer

    patch.setattr(_Placer, "_cuts_queries", lambda *_: False)


def no_classes(op: str) -> Callable[[pytest.MonkeyPatch], None]:
    kept = {k: v for k, v in cuttable.CLASSES.items() if k != op}
    return lambda patch: patch.setattr(cuttable, "CLASSES", kept) or patch.setattr("graphpar.place.place.CLASSES", kept)


def joined(equation: str) -> str:
    left, _, right = equation.partition("->")
    return ", ".join(" ".join(term) for term in left.split(",")) + f" -> {' '.join(reversed(right))}"


WRONG = {
    "softmax of a part": rule("softmax", elementwise),
    "log_softmax of a part": rule("log_softmax", elementwise),
    "log_softmax by way of softmax": (
        "log_softmax",
        lambda patch: patch.setattr(cuttable, "SPLIT", cuttable.SPLIT | {"log_softmax"}),
        of("log_softmax"),
    ),
    "running sums of a part": rule("cumsum", elementwise),
    "variance of a part": rule("var", reduce("")),
    "a maximum is a sum": rule("amax", reduce("")),
    "a triangle of a part": rule("tril", "... a b -> ... a b"),
    "an order of a part": rule("sort", elementwise),
    "a choice from a part": rule("topk", chosen_from_a_part),
    "elements of a part by number": rule("gather", gathered_from_a_part),
    "groups of a part of the rows": rule("grouped_matmul", "r k, e! k n, e! -> r n"),
    "letters of a product swapped": ("matmul", rule("matmul", "... k m, ... k n -> ... m n")[1], [SQUARE]),
    "a result transposed": ("matmul", rule("matmul", "... m k, ... k n -> ... n m")[1], [SQUARE]),
    "an equation's result backwards": rule("einsum", lambda n: joined(n.attrs["equation"])),
    "an order inverted": rule("permute", inverted),
    "statistics of a part": rule("rms_norm", "... k, k -> ... k"),
    "a norm over two dimensions by its last": (
        "layer_norm",
        lambda patch: (
            patch.setattr(cuttable, "splits", lambda n: n.op in cuttable.SPLIT)
            or patch.setattr("graphpar.place.place.splits", lambda n: n.op in cuttable.SPLIT)
        ),
        of("layer_norm"),
    ),
    "rows of a table looked up in a part": ("embedding", no_classes("embedding"), of("embedding")),
    "a loss over a part of the classes": ("cross_entropy", no_classes("cross_entropy"), of("cross_entropy")),
    "a pending sum through exp": linear("exp", (0,)),
    "a product of two pending sums": linear("mul", (0,), (1,), (0, 1)),
    "a pending sum as divisor": linear("div", (0,), (1,)),
    "a number added to a summand": linear("add", (0,), (0, 1)),
    "a pending sum through a maximum": linear("amax", (0,)),
    "a slice is the dimension it is cut from": shape("slice", same_axes),
    "what is padded is the dimension it was": shape("pad", same_axes),
    "pieces inside": shape("piece", minor_pieces),
    "a reshape by columns": shape("reshape", column_major),
    "copies outside": shape("repeat_interleave", tiled),
    "joined operands interleaved": shape("cat", first_of_all),
    "a query for each key": shape("sdpa", every_key_its_own),
    "scores of a part of the depth": shape("sdpa", depth_free),
    "a part of the queries, causal": ("sdpa", causal_anywhere, of("sdpa")[:1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wrong, cases = WRONG[name]
    wrong(monkeypatch)
    assert noticed(cases)


def test_the_case_that_only_wrong_rules_are_tried_on_is_right() -> None:
    assert not noticed([SQUARE])
