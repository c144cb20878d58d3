"""What keeps a model from being run in its stages, told by code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from compiled_zoo import origin, parsed

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.ir.graph import Graph, Node
from graphpar.ir.states import Partial
from graphpar.pipeline.check import check_stages
from graphpar.pipeline.cut import Stage
from graphpar.pipeline.cutting import resolve

PIPELINE = {"axis": "pp", "schedule": "1f1b", "microbatches": 2}
SPEC = {"version": 1, "mesh": {"pp": 2, "tp": 2}, "layout": [], "pipeline": PIPELINE}


def codes(*stages: Stage, adds_up: bool = True, **words: object) -> list[str]:
    spec = parsed({**SPEC, **words})
    cutting = resolve(spec, origin("nanogpt").captured.graph)
    return [d.code for d in check_stages(stages, cutting, spec, adds_up=adds_up)]


def test_a_sum_that_is_still_to_be_taken_is_not_sent() -> None:
    """No layout that the compiler makes has one: what takes a sum stands where it is made."""
    whole = Node("linear", (), {}, (2, 3))
    assert codes(Stage(Graph((whole,), (whole,)), range(2), last=False)) == []
    summand = replace(whole, state={"tp": Partial()})
    assert codes(Stage(Graph((summand,), (summand,)), range(2), last=False)) == ["pending-sum"]
    assert codes(Stage(Graph((summand,), (summand,)), range(2), last=True)) == []


def test_a_loss_of_a_whole_batch_has_no_microbatches() -> None:
    assert codes(adds_up=False) == ["loss-of-a-batch"]
    assert codes(adds_up=False, pipeline={**PIPELINE, "microbatches": 1}) == []


def test_masks_of_one_device_are_not_drawn_in_stages() -> None:
    spec = parsed({**SPEC, "numerics": {"rng": "exact"}})
    with pytest.raises(GraphparError) as refused:
        compile_captured(origin("nanogpt").captured, spec, {"model": "nanogpt", "spec_file": "spec.yaml"})
    assert [d.code for d in refused.value.diagnostics] == ["not-available"]
