"""What a step communicates: Megatron's counts and volumes in closed form, and the plan is what runs.

Counts are those of one step with L layers. An `all_reduce` of E elements over n ranks moves 2 (n - 1) / n E per rank, a
gather or scatter of E elements in all (n - 1) / n E.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import sympy
import torch
from builds import Model, Small, compiled, layout
from parity import case, differences, run
from zoo import MODELS

from graphpar.codegen.plan import flat
from graphpar.ir.states import I, P

GPT2, LLAMA = MODELS["gpt2"], MODELS["llama_gqa"]
L = {"gpt2": 4, "llama_gqa": 3}
BATCH, SEQ = sympy.symbols("batch seq")


def entries(model: Model, spec: str | Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every collective of a step outside the loss, loops written out."""
    return [e for e in flat(compiled(model, spec).plan["collectives"]) if e["op"] != "cross_entropy"]


def counts(model: Model, spec: str | Mapping[str, Any], direction: str) -> dict[str, int]:
    return dict(Counter(e[direction] for e in entries(model, spec) if e[direction]))


def in_loop(model: Model, spec: str, direction: str) -> dict[str, int]:
    """The collectives of one layer."""
    (loop,) = (e for e in compiled(model, spec).plan["collectives"] if "loop" in e)
    return dict(Counter(e[direction] for e in loop["bodies"][0] if e[direction]))


def elements(text: str) -> sympy.Expr:
    return sympy.sympify(text, locals={"batch": BATCH, "seq": SEQ})


def volume(model: Model, spec: str | Mapping[str, Any], ranks: int) -> sympy.Expr:
    """Elements that a rank sends in one step, ring algorithms."""
    share = {
        "all_reduce": sympy.Rational(2 * (ranks - 1), ranks),
        "reduce_scatter": sympy.Rational(ranks - 1, ranks),
        "all_gather": sympy.Integer(ranks - 1),  # elements are those of one part
    }
    total = sympy.Integer(0)
    for e in entries(model, spec):
        for d in ("forward", "backward"):
            total += share[e[d]] * elements(e[f"{d}_elements"]) if e[d] else 0
    return sympy.expand(total)


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama_gqa"])
def test_tensor_parallel_layers_sum_twice_forward_and_twice_backward(model: Model) -> None:
    """Megatron's g after each row-parallel matrix, f before each column-parallel pair; q, k, v share one f."""
    for direction in ("forward", "backward"):
        assert in_loop(model, "tp2", direction) == {"all_reduce": 2}
        # the embedding's sum forward, the head's input backward
        assert counts(model, "tp2", direction) == {"all_reduce": 2 * L[model.name] + 1}


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama_gqa"])
def test_sequence_parallel_layers_gather_and_scatter_twice_each_way(model: Model) -> None:
    for direction in ("forward", "backward"):
        assert in_loop(model, "tp2+sp", direction) == {"all_gather": 2, "reduce_scatter": 2}
        times = 2 * L[model.name] + 1
        assert counts(model, "tp2+sp", direction) == {"all_gather": times, "reduce_scatter": times}


def test_under_sequence_parallelism_norms_and_late_biases_are_summed_once_a_step() -> None:
    """6 L + 2 tensors with biases, and the position table.

    The table is sliced by looking up this rank's positions only, so its gradient is summed once per step, where a slice
    of its result would gather a gradient of seq x d_model in every backward.
    """
    parameters = compiled(GPT2, "tp2+sp").plan["parameters"]
    summed = {n for n, e in parameters.items() if e["grad_sum"]}
    assert all(parameters[n]["grad_sum"] == ["tp"] for n in summed)
    late = ("ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias", "attn.c_proj.bias", "mlp.c_proj.bias")
    expected = {f"transformer.h.{i}.{name}" for i in range(4) for name in late}
    assert summed == expected | {"transformer.ln_f.weight", "transformer.ln_f.bias", "transformer.wpe.weight"}
    norms = {n for n, e in compiled(LLAMA, "tp2+sp").plan["parameters"].items() if e["grad_sum"]}
    assert len(norms) == 2 * 3 + 1


@pytest.mark.parametrize("model", [GPT2, LLAMA], ids=["gpt2", "llama_gqa"])
def test_the_volume_is_what_megatron_moves_with_and_without_sequence_parallelism(model: Model) -> None:
    d_model, layers, n = model.sizes["d_model"], L[model.name], 2
    reduces = 2 * (2 * layers + 1)
    closed = reduces * sympy.Rational(2 * (n - 1), n) * BATCH * SEQ * d_model
    assert volume(model, "tp2", n) == sympy.expand(closed)
    assert volume(model, "tp2+sp", n) == sympy.expand(closed)


def test_every_collective_of_a_layer_moves_the_stream_and_nothing_larger() -> None:
    for e in entries(LLAMA, "tp2"):
        for d in ("forward", "backward"):
            if e[d]:
                assert elements(e[f"{d}_elements"]) == 64 * BATCH * SEQ
    for e in entries(LLAMA, "dp2xtp2"):
        for d in ("forward", "backward"):
            if e[d]:
                assert elements(e[f"{d}_elements"]) == 32 * BATCH * SEQ, "batch is cut in two"


@pytest.mark.parametrize("ranks", [2, 4])
def test_data_parallelism_only_sums_each_parameter_s_gradient(ranks: int) -> None:
    """16 L + 4 tensors of a GPT with biases less 4 L: 12 L + 4 here; the tied matrix counts once."""
    plan = compiled(GPT2, f"dp{ranks}").plan
    assert plan["collectives"] == []
    assert [e["grad_sum"] for e in plan["parameters"].values()] == [["dp"]] * (12 * 4 + 4)


def test_data_tensor_and_sequence_parallelism_are_the_union() -> None:
    both = compiled(GPT2, "dp2xtp2+sp").plan["parameters"]
    alone = compiled(GPT2, "tp2+sp").plan["parameters"]
    assert {n: e["grad_sum"] for n, e in both.items()} == {n: ["dp", *e["grad_sum"]] for n, e in alone.items()}
    for direction in ("forward", "backward"):
        assert counts(GPT2, "dp2xtp2+sp", direction) == counts(GPT2, "tp2+sp", direction)
    assert all(e["axis"] == "tp" for e in entries(GPT2, "dp2xtp2+sp"))


def test_the_loss_is_pending_where_tokens_are_cut_and_one_value_elsewhere() -> None:
    (loss,) = compiled(GPT2, "dp2xtp2+sp").placed.graph.outputs
    assert loss.state == {"dp": P, "tp": I}


def test_parallel_blocks_are_added_before_they_are_summed() -> None:
    """attn(x) + mlp(x), both pending: one sum per block, and one backward since both read one norm."""
    model = Small("parallel")
    for direction in ("forward", "backward"):
        assert in_loop(model, "tp2", direction) == {"all_reduce": 1}
        assert counts(model, "tp2", direction) == {"all_reduce": 3 + 1}


def test_keys_of_fewer_heads_than_ranks_are_computed_twice_and_their_gradients_summed() -> None:
    body = [e for e in entries(LLAMA, "kv2xq2") if e["module"].endswith("self_attn") and e["axis"] == "tq"]
    narrow = [e for e in body if elements(e["backward_elements"]) == 8 * BATCH * SEQ]
    assert len(narrow) == 2 * 3, "dK and dV of each layer"
    assert all(e["forward"] is None and e["backward"] == "all_reduce" for e in narrow)


def test_the_order_of_rules_is_priority() -> None:
    """`seq` before `heads`: layers keep their tokens; weights are stored in parts and gathered where tokens are cut."""
    rules = ("heads tp", "d_ff tp", "vocab tp")
    first = layout({"tp": 2}, "seq tp", *rules, uneven={"vocab": "pad"})
    assert compiled(GPT2, first).plan["parameters"]["transformer.h.0.attn.c_attn.weight"]["local_shape"] == [64, 96]
    constant = [e for e in entries(GPT2, first) if not elements(e["forward_elements"] or "seq").free_symbols]
    weights = [e for e in constant if e["forward_elements"] != "1"]  # the loss is summed, too
    assert {(e["forward"], e["backward"]) for e in weights} == {("all_gather", "reduce_scatter")}
    assert len(weights) == 6 * 4 + 1, "c_attn, c_proj and both MLP matrices, two biases, the tied table once"
    assert differences(compiled(GPT2, first), case(GPT2)) == {}


# ---- the plan is what runs ----------------------------------------------------------------------------------------

RUNS = [("gpt2", "tp2"), ("gpt2", "tp2+sp"), ("llama_gqa", "kv2xq2"), ("llama_gqa", "dp2xtp2+sp"), ("gpt2", "tp2xd2")]


@pytest.mark.parametrize(("name", "spec"), RUNS)
def test_what_runs_is_the_plan_in_kind_order_axis_and_bytes(name: str, spec: str) -> None:
    model = MODELS[name]
    build = compiled(model, spec)
    own = case(model)
    sizes = {"batch": model.rows, "seq": model.length}
    planned = flat(build.plan["collectives"])
    forward = [(e["axis"], e["forward"], e["forward_elements"]) for e in planned if e["forward"]]
    backward = [(e["axis"], e["backward"], e["backward_elements"]) for e in reversed(planned) if e["backward"]]
    expected = {
        phase: [(axis, kind, int(elements(text).subs(sizes)) * 4) for axis, kind, text in listed]
        for phase, listed in (("forward", forward), ("backward", backward))
    }
    for result in run(build, own.weights, own.batch, torch.float32, log=True):
        for phase in ("forward", "backward"):
            done = [(e.axis, e.kind, e.bytes) for e in result.executed if e.phase == phase]
            assert done == expected[phase]


def test_gradients_are_summed_in_few_buckets_after_backward() -> None:
    own = case(GPT2)
    for result in run(compiled(GPT2, "dp2"), own.weights, own.batch, torch.float32, log=True):
        step = [e for e in result.executed if e.phase == "step"]
        assert {e.kind for e in step} == {"all_reduce"} and len(step) < 10
        assert sum(e.bytes for e in step) == 4 * sum(g.numel() for g in own.eager.gradients.values())
