"""Every row of the op table, cut in every legal way, against torch: result and gradients, in float64."""

from __future__ import annotations

import pytest

from graphpar.ops.rules import LINEAR, RULES
from graphpar.ops.shapes import SHAPES
from tools.ops.case import Case, row
from tools.ops.program import Sharding, placed, whole
from tools.ops.run import difference
from tools.ops.shardings import programs, single
from tools.ops.table import CASES, LEFT_OUT, of

TOLERANCE = 1e-12


def test_every_op_of_the_table_has_a_case_or_a_reason() -> None:
    table, tried = {*RULES, *SHAPES}, {case.op for case in CASES}
    assert table - tried == set(LEFT_OUT)
    assert tried <= table
    assert set(LINEAR) <= table


def test_cases_are_told_apart() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


@pytest.mark.parametrize("op", sorted({case.op for case in CASES}))
def test_no_way_to_cut_an_op_changes_its_result_or_a_gradient(op: str) -> None:
    wrong = {
        f"{case.id} {program}": apart
        for case in of(op)
        for program in programs(case)
        if not (apart := difference(program)) <= TOLERANCE
    }
    assert wrong == {}


def test_an_uneven_vocabulary_is_padded_and_anything_else_uneven_is_refused() -> None:
    uneven = [c for c in CASES if any(9 in o.shape for o in c.operands)]
    padded = {
        c.op for c in uneven for p in single(whole(c)) if 9 in {p.whole.factors[f].size for f in p.claims.values()}
    }
    assert padded == {"embedding", "cross_entropy", "exp", "eq", "add", "linear", "permute", "cat", "stack"}
    odd = whole(row("exp", "torch.exp(x)", "x 5 6"))
    first, second = (placed(odd, Sharding({f: ("x",)}, {})) for f in odd.factors)
    assert first.refused and not first.claims
    assert second.claims and not second.refused


def test_a_case_is_not_all_zeros_or_all_alike() -> None:
    def dull(case: Case) -> bool:
        return len(case.run(case.values(1)).unique()) < 2

    assert [c.id for c in CASES if dull(c) and c.shape not in ((), (1,)) and c.attrs.get("keep") is not True] == []
