"""Models that people write and no zoo has: a layout gives what one device gives, or a refusal that is listed here."""

from __future__ import annotations

from typing import Any

import pytest
from builds import ONES, SMALL, Small, compiled, layout
from parity import case, differences, same_bits

from graphpar.check.check import check_program
from graphpar.errors import GraphparError

MODELS = sorted(path.stem for path in SMALL.glob("*.py") if path.stem != "parts")

SPECS: dict[str, dict[str, Any]] = {
    "tp2": layout({"tp": 2}, "heads tp", "d_ff tp", "vocab tp"),
    "tp2+sp": layout({"tp": 2}, "heads tp", "d_ff tp", "vocab tp", "seq tp"),
    "dp2": layout({"dp": 2}, "batch dp"),
    "d2": layout({"d": 2}, "d_model d"),  # the residual stream is cut
}

EVERYWHERE = ("one device", *SPECS)
NO_FEED_FORWARD: dict[str, str] = dict.fromkeys(("tp2", "tp2+sp"), "unknown-dimension")  # nothing is called d_ff
NO_STREAM = NO_FEED_FORWARD | {"d2": "unknown-dimension"}  # nor d_model

REFUSED: dict[str, dict[str, str]] = {
    "causal_convolution": dict.fromkeys(EVERYWHERE, "no-op-rule"),
    "class_weights": dict.fromkeys(EVERYWHERE, "no-op-rule"),
    "deep_supervision": dict.fromkeys(EVERYWHERE, "several-means"),
    "flat_stream": dict.fromkeys(EVERYWHERE, "size-not-apart"),
    "joined_positions": NO_FEED_FORWARD,
    "last_token": dict.fromkeys(EVERYWHERE, "several-means"),
    "loss_nll": dict.fromkeys(EVERYWHERE, "no-op-rule"),
    "no_output_projection": NO_STREAM,
    "sinusoids": NO_STREAM,
    "square": NO_FEED_FORWARD,  # d_model on both sides
}

# What is not the source's bits on one device.
ROUNDED = {
    "loss_smooth": "torch divides each of two parts by the count, the program their sum",
}

# The feed-forward's dimension given a name by hand: what a spec can do where nothing is recognised.
NAMED: dict[str, dict[str, str]] = {
    "joined_positions": {"up.weight": "d_ff d_model", "up.bias": "d_ff", "down.weight": "d_model d_ff"},
    "no_output_projection": {
        "up.weight": "d_ff (heads d_head)",
        "up.bias": "d_ff",
        "down.weight": "(heads d_head) d_ff",
    },
    "sinusoids": {"up.weight": "d_ff (heads d_head)", "up.bias": "d_ff", "down.weight": "(heads d_head) d_ff"},
    "tied_mlp": {"up.weight": "d_ff d_model", "up.bias": "d_ff"},
}
# Where the stream is (heads d_head), heads go before seq everywhere.
REFUSED_NAMED = {("sinusoids", "tp2+sp"): "unused-rule"}


def holds(model: Small, document: dict[str, Any], refused: str | None) -> None:
    """The build computes what one device computes, or there is none, for this reason and no other."""
    if refused is None:
        build = compiled(model, document)
        assert check_program(build.files["model.py"], build.plan) == []
        assert differences(build, case(model)) == {}
        return
    with pytest.raises(GraphparError) as caught:
        compiled(model, document)
    assert {d.code for d in caught.value.diagnostics} == {refused}


def case_of(model: str, spec: str) -> Any:
    """A model is captured in one process."""
    return pytest.param(model, spec, id=f"{model}-{spec}", marks=pytest.mark.xdist_group(f"odd-{model}"))


cases = [case_of(m, s) for m in MODELS for s in EVERYWHERE]
named = [case_of(m, s) for m in NAMED for s in ("tp2", "tp2+sp")]


@pytest.mark.parametrize(("model", "spec"), cases)
def test_no_layout_of_an_odd_model_changes_a_result(model: str, spec: str) -> None:
    refused = REFUSED.get(model, {}).get(spec)
    if spec != "one device":
        holds(Small(model), SPECS[spec], refused)
    elif refused is not None:
        holds(Small(model), ONES, refused)
    else:
        other = same_bits(compiled(Small(model), "ones"), case(Small(model)))
        assert bool(other) == (model in ROUNDED), other


@pytest.mark.parametrize(("model", "spec"), named)
def test_a_name_given_by_hand_makes_a_layout_possible(model: str, spec: str) -> None:
    holds(Small(model), SPECS[spec] | {"names": NAMED[model]}, REFUSED_NAMED.get((model, spec)))


@pytest.mark.xdist_group("odd-unet_skips")
@pytest.mark.parametrize("selector", ["blocks[-1].attn", "layers[3].attn"])
def test_a_region_picks_from_a_list_that_is_no_loop(selector: str) -> None:
    """Skips that jump over blocks: each of them is written out."""
    region = {"at": selector, "layout": [{"heads": "none"}]}
    build = compiled(Small("unet_skips"), SPECS["tp2"] | {"regions": [region]})
    whole = {name for name, entry in build.plan["parameters"].items() if "tp" not in str(entry["dims"])}
    assert {name for name in whole if ".attn.q." in name} == {"blocks.3.attn.q.weight", "blocks.3.attn.q.bias"}
    assert differences(build, case(Small("unet_skips"))) == {}


def test_the_tables_speak_of_models_that_exist() -> None:
    spoken = {*REFUSED, *ROUNDED, *NAMED, *(m for m, _ in REFUSED_NAMED)}
    assert spoken <= set(MODELS)
