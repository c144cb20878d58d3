"""`moe` in the spec of a model that has no experts is told, before placement and after it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builds import Small, compiled, layout, spec_of

from graphpar.errors import Diagnostic, GraphparError
from graphpar.place.check import check_placed, unkept

MODEL = Small("flat_feed_forward")
PLAIN = layout({"dp": 2}, "batch dp")
ASKS = {**PLAIN, "moe": {"experts": "dp"}}


def codes(found: tuple[Diagnostic, ...]) -> list[str]:
    return [d.code for d in found]


@pytest.mark.xdist_group("moe-asked")
def test_experts_of_a_model_without_any_are_an_error() -> None:
    with pytest.raises(GraphparError) as caught:
        compiled(MODEL, ASKS)
    (problem,) = (d for d in caught.value.diagnostics if d.code == "no-experts")
    assert "there is no mixture of experts in this model" in problem.message
    assert problem.exit_code == 2


@pytest.mark.xdist_group("moe-asked")
def test_experts_that_nothing_claims_are_an_error() -> None:
    placed = compiled(MODEL, PLAIN).placed
    assert codes(check_placed(placed)) == []
    asked = replace(placed.layout, spec=spec_of(MODEL, ASKS))
    assert codes(check_placed(replace(placed, layout=asked))) == ["no-experts"]
    alone = replace(asked, mesh={"dp": 1})
    assert codes(check_placed(replace(placed, layout=alone))) == []


def test_experts_are_not_compiled_yet() -> None:
    assert codes(tuple(unkept(spec_of(MODEL, ASKS), {}))) == ["not-available"]
