"""Stages of models of the zoo: which layers, on which rank, and what they cost."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
import zoo
from compiled_zoo import origin, parsed
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from graphpar.compiler import simplify
from graphpar.ir.graph import Graph
from graphpar.language.schedules import SCHEDULES
from graphpar.pipeline.costs import costs, operations
from graphpar.pipeline.cutting import Cutting, resolve
from graphpar.pipeline.describe import describe
from graphpar.pipeline.tied import check_tied
from graphpar.place.bodies import split_bodies
from graphpar.schedules.actions import homes
from graphpar.schedules.clock import clock

HERE = Path(__file__).parent
NAMES = ["nanogpt", "nanogpt_manual", "llama_style", "tied_functional"]
LONGEST = {"llama_style": 48}  # rows of its table of angles, which is no parameter
PRODUCTS = ("linear", "matmul", "einsum", "sdpa")


def graph_of(name: str) -> Graph:
    return simplify(origin(name).captured.graph)


def spec_of(ranks: int = 2, **pipeline):
    words = {"axis": "pp", "schedule": "1f1b", "microbatches": 4, **pipeline}
    return parsed({"version": 1, "mesh": {"pp": ranks}, "layout": [], "pipeline": words})


def cut(name: str, ranks: int = 2, **pipeline) -> Cutting:
    return resolve(spec_of(ranks, **pipeline), graph_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_operations_are_those_that_torch_counts(name):
    model = zoo.MODELS[name]
    module = model.build()
    seq = 16
    ids = torch.randint(3, model.sizes["vocab"], (1, seq))
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        module(**dict(zip(model.arguments, (ids, ids), strict=True)), **model.keywords())
    graph = graph_of(name)
    times = {node: len(graph.members(node.origin.module)) for node in graph.nodes}
    found = sum(times[n] * operations(n, seq) for n in graph.nodes if n.op in PRODUCTS)
    assert found == counter.get_total_flops()


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_one_kind_cost_the_same_and_the_rest_comes_before_or_behind(name):
    graph = graph_of(name)
    found = costs(graph, graph.aliases()["layers"])
    sizes = zoo.MODELS[name].sizes
    assert len(found.layers) == sizes["layers"] and len(set(found.layers)) == 1
    head = 2 * sizes["d_model"] * sizes["vocab"]  # of one position
    length = LONGEST.get(name) or sizes["max_pos"]
    assert head * length < found.behind < 1.1 * head * length
    assert 0 <= found.before < found.layers[0]


def test_a_layer_with_a_body_of_its_own_is_counted_as_before():
    graph = graph_of("nanogpt")
    regions = [{"at": "layers[1:3].mlp", "layout": [{"d_ff": "none"}]}]
    apart = split_bodies(graph, parsed({"version": 1, "mesh": {"tp": 2}, "layout": [], "regions": regions}))
    assert len(set(apart.loops["transformer.h"].kinds)) == 2
    assert costs(apart, "transformer.h") == costs(graph, "transformer.h")
    spec = spec_of(stages=["transformer.wte, layers[0:2]", "layers[2:4], ln_f"])
    assert resolve(spec, apart) == resolve(spec, graph)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_runs_all_layers(schedule):
    found = cut("nanogpt", schedule=schedule)
    stages = 2 * SCHEDULES[schedule].usual
    assert [len(piece) for piece in found.layers] == [4 // stages] * stages
    assert [i for piece in found.layers for i in piece] == [0, 1, 2, 3]
    assert found.ranks == tuple(SCHEDULES[schedule].rank(s, 2) for s in range(stages))
    assert dict(enumerate(found.ranks)) == homes(found.order)
    assert (found.axis, found.path, found.modules, found.microbatches) == ("pp", "transformer.h", {}, 4)
    assert len(found.timeline.runs) == sum(len(step) for steps in found.order.values() for step in steps)


def test_what_lies_behind_the_layers_counts():
    found = costs(graph_of("tied_functional"), "blocks")
    assert found.behind > found.before
    assert cut("tied_functional").layers == (range(2), range(2, 3))


def test_one_rank_is_a_pipeline_of_one_stage():
    found = cut("llama_style", 1)
    assert found.layers == (range(2),) and found.ranks == (0,)
    assert found.timeline.bubble == 0


def test_fewer_microbatches_than_stages_are_allowed():
    assert cut("nanogpt", 4, microbatches=1).timeline.bubble > 0.7


def test_listed_stages_have_their_layers_and_modules():
    found = cut("nanogpt", 4, stages=["wte, wpe", "layers[0:3]", "h[-1]", "ln_f, /lm_head"])
    assert found.layers == (range(0), range(3), range(3, 4), range(4, 4))
    assert found.modules == {"transformer.wte": 0, "transformer.wpe": 0, "transformer.ln_f": 3, "lm_head": 3}
    runs = {run.action.stage: run.end - run.start for run in found.timeline.runs if run.action.kind == "F"}
    assert runs[1] == 3 * runs[2] > runs[3] > runs[0]


def test_a_list_is_named_by_itself_or_as_the_usual_one():
    assert cut("nanogpt").path == cut("nanogpt", layers="h").path == cut("nanogpt", layers="/transformer.h").path
    assert cut("nanogpt_manual").path == "blocks"  # and not one of the lists inside of its blocks


def test_a_schedule_of_a_file_is_that_schedule(tmp_path):
    from graphpar.language import load_spec
    from graphpar.pipeline.file import spell_order

    for name in SCHEDULES:
        named = cut("nanogpt", schedule=name)
        (tmp_path / "own.csv").write_text(spell_order(named.order))
        words = {"axis": "pp", "schedule": "own.csv", "microbatches": 4}
        document = {"version": 1, "mesh": {"pp": 2}, "layout": [], "pipeline": words}
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))
        read = resolve(load_spec(tmp_path / "spec.yaml"), graph_of("nanogpt"))
        assert (read.order, read.ranks, read.layers) == (named.order, named.ranks, named.layers)
        assert read.timeline == named.timeline


def test_the_description_is_short(golden):
    cuts = [
        cut("nanogpt"),
        cut("nanogpt", schedule="zbv"),
        cut("nanogpt", stages=["wte, layers[0:3]", "h[3], lm_head"]),
    ]
    golden(HERE / "described.txt", "\n\n".join("\n".join(describe(found)) for found in cuts) + "\n")


def test_parameters_of_several_ranks_are_told_where_they_may_not_be():
    stages = [{"wte", "a"}, {"b"}, {"c"}, {"wte", "d"}]
    same = spec_of(2, schedule="zbv", tied="same_stage")
    assert check_tied(stages, [0, 1, 1, 0], same) == []
    assert check_tied(stages, [0, 1, 2, 3], spec_of(4)) == []
    (told,) = check_tied(stages, [0, 1, 2, 3], spec_of(4, tied="same_stage"))
    assert told.code == "tied-apart" and told.span is not None
    assert told.why == ("it is read by stage 0 on pp 0 and stage 3 on pp 3",)


def test_times_are_those_of_the_clock():
    from graphpar.schedules.clock import Costs

    found = cut("nanogpt")
    counted = costs(graph_of("nanogpt"), "transformer.h")
    times = [counted.before + 2 * counted.layers[0], counted.behind + 2 * counted.layers[0]]
    assert found.work == tuple(times)
    assert found.timeline == clock(found.order, Costs(times, times, times))
