"""docs/ops.md says what the rules do; what decoder families export has a rule."""

from __future__ import annotations

from pathlib import Path

from graphpar.ops.rules import RULES
from graphpar.ops.shapes import SHAPES
from tools.ops.case import row
from tools.ops.families import FAMILIES, exported, has_rule, recorded
from tools.ops.missing import missing
from tools.ops.page import page

PAGE = Path(__file__).parents[2] / "docs" / "ops.md"


def test_the_page_is_what_the_tool_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(recorded()), "python -m tools.ops --write docs/ops.md writes it"


def test_what_a_rule_leaves_out_is_found() -> None:
    (way,) = missing(row("detach", "torch.detach(x)", "x 4 6"))
    assert [str(held) for held in (*way[0], way[1])] == ["P", "P"]


def test_every_op_of_at_least_25_families_has_a_rule() -> None:
    found = recorded()
    assert len(found) >= 25 and set(found) == set(FAMILIES)
    assert {op for ops in found.values() for op in ops if not has_rule(op)} == set()


def test_what_is_recorded_of_a_family_is_what_it_exports() -> None:
    assert exported("gpt2") == recorded()["gpt2"]


def test_the_table_says_nothing_of_ops_that_do_not_exist() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"| {op} |" in text for op in (*RULES, *SHAPES))
