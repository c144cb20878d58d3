"""What makes nodes a graph, and what a pass is told that leaves something else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from builds import ONES, Small, captured, source, spec_of
from graphs import graph, inputs, op

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.ir.graph import Graph, Loop, Node, Origin
from graphpar.ir.verify import problems

IDS = inputs("ids", 2, 3)


def inside(node: Node, module: str) -> Node:
    return replace(node, origin=Origin(module))


def looped(read: str, kinds: tuple[int, ...] = (0, 1)) -> Graph:
    """A loop of two kinds of body, each of which adds something made in the body `read`, or its own."""
    enter = op("loop_enter", IDS, shape=(2, 3), loop="blocks", slot=0)
    made = [inside(op("arange", shape=(3,)), f"blocks.*{k}") for k in (0, 1)]
    seen = [made[int(read)] if read else made[k] for k in (0, 1)]
    bodies = [inside(op("add", enter, seen[k], shape=(2, 3)), f"blocks.*{k}") for k in (0, 1)]
    leave = op("loop_leave", *bodies, shape=(2, 3), loop="blocks", slot=0)
    return replace(graph(leave), loops={"blocks": Loop("blocks", kinds)})


def test_a_loop_of_two_bodies_is_a_graph() -> None:
    assert problems(looped("")) == []


def test_what_a_body_makes_is_its_own() -> None:
    (told,) = problems(looped("0"))
    assert "blocks.*1" in told and told.endswith("which only blocks.*0 knows")


def test_a_result_of_a_body_leaves_by_the_loop() -> None:
    whole = looped("")
    body = whole.outputs[0].operands[0]
    read = op("neg", body, shape=(2, 3))
    assert len(problems(replace(whole, nodes=(*whole.nodes, read)))) == 1


def test_a_loop_has_a_result_of_each_kind() -> None:
    (told,) = problems(looped("", kinds=(0, 0)))
    assert told.endswith("has 2 results for 1 kinds of body")
    assert len(problems(replace(looped(""), loops={}))) == 2  # in and out


def test_operands_come_first_and_outputs_are_there() -> None:
    whole = graph(op("neg", IDS, shape=(2, 3)))
    assert len(problems(replace(whole, nodes=whole.nodes[::-1]))) == 1
    assert len(problems(replace(whole, nodes=(*whole.nodes, whole.nodes[-1])))) == 1
    assert len(problems(replace(whole, nodes=whole.nodes[:-1]))) == 1


def test_a_pass_that_breaks_the_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "backwards.py").write_text(
        "from dataclasses import replace\n\n\ndef backwards(graph):\n    return replace(graph, nodes=graph.nodes[::-1])\n"
    )
    model = Small("einsum")
    with pytest.raises(GraphparError) as caught:
        compile_captured(captured(model), spec_of(model, ONES), source(model), [tmp_path])
    (found,) = caught.value.diagnostics
    assert found.code == "pass-breaks-graph" and str(found.span) == f"{tmp_path / 'backwards.py'}:1:1"
    assert "`backwards`" in found.message and len(found.why) == 6 and found.why[-1].endswith("more")
