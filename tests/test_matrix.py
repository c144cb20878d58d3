"""The law: the layout changes speed and memory, never results. Every zoo model under every legal spec, and some more.

With `pytest -n 2 --dist loadgroup` a model is captured once.
"""

from __future__ import annotations

from typing import Any

import pytest
from compiled_zoo import origin, parsed, told, verified
from zoo import MODELS, SPECS, spec

from graphpar.compiler import compile_captured
from graphpar.errors import GraphparError
from graphpar.verify.verify import Options

TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
DATA_AND_TENSOR = {"version": 1, "mesh": {"dp": 2, "tp": 2}}

MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "whole layers among cut ones": (
        "gpt2_untied",
        {
            **DATA_AND_TENSOR,
            "layout": [{"batch": "dp"}, *TENSOR, {"seq": "tp"}],
            "regions": [
                {"at": "layers[0].mlp", "layout": [{"d_ff": "none"}]},
                {"at": "layers[-1].attn", "layout": [{"heads": "none"}]},
            ],
        },
    ),
    "whole layers without seq": (
        "nanogpt",
        {
            **DATA_AND_TENSOR,
            "layout": [{"batch": "dp"}, *TENSOR],
            "regions": [
                {"at": "layers[1].mlp", "layout": [{"d_ff": "none"}]},
                {"at": "layers[0].attn", "layout": [{"heads": "none"}]},
            ],
        },
    ),
    "the loss whole": (
        "gpt2_untied",
        {
            **DATA_AND_TENSOR,
            "layout": [{"batch": "dp"}, *TENSOR, {"seq": "tp"}],
            "regions": [{"at": "lm_head, op:cross_entropy", "only": True, "layout": [{"batch": "dp"}, {"seq": "tp"}]}],
        },
    ),
    "masks of dropout as on one device": (
        "gpt2",
        {
            **DATA_AND_TENSOR,
            "layout": [{"batch": "dp"}, *TENSOR, {"seq": "tp"}],
            "uneven": {"vocab": "pad"},
            "numerics": {"rng": "exact"},
        },
    ),
    "two data axes": (
        "llama_gqa",
        {"version": 1, "mesh": {"rep": 2, "dp": 2}, "layout": [{"batch": ["rep", "dp"]}]},
    ),
    "two data axes and a tied head": (
        "gpt2",
        {
            "version": 1,
            "mesh": {"rep": 2, "dp": 2, "tp": 2},
            "layout": [{"batch": ["rep", "dp"]}, *TENSOR],
            "uneven": {"vocab": "pad"},
        },
    ),
    "a vocabulary padded over four, tied": (
        "gpt2",
        {"version": 1, "mesh": {"tp": 4}, "layout": TENSOR, "uneven": {"vocab": "pad"}},
    ),
    "a vocabulary padded over two axes, untied": (
        "qwen3",
        {
            "version": 1,
            "mesh": {"a": 2, "b": 2},
            "layout": [{"kv_heads": "a"}, {"q_group": "b"}, {"d_ff": ["a", "b"]}, {"vocab": ["a", "b"]}],
            "uneven": {"vocab": "pad"},
        },
    ),
    "only the vocabulary": (
        "opt",
        {"version": 1, "mesh": {"tp": 2}, "layout": [{"vocab": "tp"}], "uneven": {"vocab": "pad"}},
    ),
    "only the feed-forward": ("phi3", {"version": 1, "mesh": {"tp": 2}, "layout": [{"d_ff": "tp"}]}),
    "an axis that nothing uses": ("llama", {"version": 1, "mesh": {"dp": 2, "x": 2}, "layout": [{"batch": "dp"}]}),
    "an axis of one": ("llama", {"version": 1, "mesh": {"dp": 1, "tp": 2}, "layout": [{"batch": "dp"}, *TENSOR]}),
    "seq over data ranks": (
        "llama",
        {"version": 1, "mesh": {"dp": 2, "cp": 2}, "layout": [{"batch": "dp"}, {"seq": "cp"}]},
    ),
    "seq over two axes": (
        "gpt2_untied",
        {
            "version": 1,
            "mesh": {"cp": 2, "tp": 2},
            "layout": [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}, {"seq": ["cp", "tp"]}],
        },
    ),
}


def case(model: str, *rest: Any, name: str) -> Any:
    """A parameter of a test that runs in the process that has captured `model`."""
    return pytest.param(model, *rest, id=name, marks=pytest.mark.xdist_group(model))


every_model = pytest.mark.parametrize("model", [case(name, name=name) for name in MODELS])
legal = [case(m.name, s, name=f"{m.name}-{s}") for m in MODELS.values() for s in SPECS if s in m.legal]
illegal = [case(m.name, s, name=f"{m.name}-{s}") for m in MODELS.values() for s in SPECS if s not in m.legal]


@pytest.mark.parametrize(("model", "layout"), legal)
def test_no_layout_changes_a_result(model: str, layout: str, tmp_path) -> None:
    report = verified(model, spec(layout, MODELS[model]), tmp_path, Options(capture=False))
    assert report.passed, told(report)
    assert report.checks[0].name == "text" and report.checks[0].outcome == "ok", report.checks[0]


@every_model
def test_on_one_device_the_program_is_the_source_bit_for_bit(model: str, tmp_path, request, monkeypatch) -> None:
    # When it is exported the library copies shared keys and values, and else it may leave that to a kernel of torch,
    # which adds up their gradients in an order that depends on the processor. Here it copies both times.
    monkeypatch.setattr("transformers.integrations.sdpa_attention.use_gqa_in_sdpa", lambda *_: False)
    if model == "interleaved_qkv":
        why = (
            "label smoothing: torch divides each of two parts by the count, the program their sum: the last bit differs"
        )
        request.applymarker(pytest.mark.xfail(strict=True, reason=why))
    document = spec("dp2", MODELS[model]) | {"mesh": {"dp": 1}}
    report = verified(model, document, tmp_path, Options())
    assert report.passed, told(report)
    captured = [check for check in report.checks if check.name.startswith(("captured program,", "causality"))]
    assert len(captured) == 4
    assert {check.name: check.error for check in captured if check.outcome != "exact"} == {}


@pytest.mark.parametrize(("model", "document"), [case(m, d, name=name) for name, (m, d) in MORE.items()])
def test_no_other_layout_changes_a_result_either(model: str, document: dict[str, Any], tmp_path) -> None:
    report = verified(model, document, tmp_path, Options())
    assert report.passed, told(report)
    assert report.checks[0].name == "text" and report.checks[0].outcome == "ok", report.checks[0]


@pytest.mark.parametrize(("model", "layout"), illegal)
def test_what_does_not_divide_is_told_and_not_compiled(model: str, layout: str) -> None:
    with pytest.raises(GraphparError) as caught:
        compile_captured(
            origin(model).captured, parsed(spec(layout, MODELS[model])), {"model": model, "spec_file": "s"}
        )
    assert caught.value.exit_code == 2
    assert all(d.span is not None for d in caught.value.diagnostics), caught.value
