"""What a build says of its experts: in plan.json, and on the terminal."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphpar.capture.capture import Captured
from graphpar.compiler import Build, compile_captured
from graphpar.explain.experts import describe_experts
from graphpar.explain.names import names
from graphpar.explain.traffic import Tokens
from graphpar.language.parse import parse_spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin

MODELS = Path(__file__).parents[1] / "models"
STEP = Tokens(8, 16, "")
EP = {"mesh": {"ep": 2}, "layout": [{"batch": "ep"}], "moe": {"experts": "ep"}}
ROOM = {**EP, "moe": {"experts": "ep", "tokens": "capacity", "capacity_factor": 1.25}}


@cache
def captured(model: str) -> Captured:
    source = open_model(f"{MODELS / model}")
    return Origin(source.construct, source.signature).captured


def built(model: str, document: dict[str, Any]) -> Build:
    spec = parse_spec(yaml.safe_dump({"version": 1, **document}), "spec.yaml")
    return compile_captured(captured(model), spec, {"model": model, "spec_file": "spec.yaml"})


def test_each_layer_says_which_rank_has_which_experts_and_what_comes_to_them():
    first, second = built("moe_plain.py:tiny", EP).plan["experts"]
    assert (first["module"], second["module"]) == ("blocks.1.ffn", "blocks.3.ffn")
    told = {key: first[key] for key in ("layers", "experts", "axes", "per_rank", "topk", "capacity_factor")}
    assert told == {"layers": 1, "experts": 8, "axes": ["ep"], "per_rank": 4, "topk": 2, "capacity_factor": None}
    assert (first["tokens"], first["rows"], first["width"]) == ("batch*seq/2", "batch*seq", 48)


@pytest.mark.parametrize(
    ("model", "spec", "line"),
    [
        # 8 x 16 tokens on 2 ranks, two rows of 48 float32 for each
        (
            "moe_plain.py:tiny",
            EP,
            "8 experts, 4 on each rank of ep; in each, a rank routes 128 rows of 64 tokens, 24 KiB",
        ),
        (
            "moe_plain.py:tiny",
            ROOM,
            "8 experts of capacity factor 1.25, 4 on each rank of ep; "
            "in each, a rank routes at most 128 rows of 64 tokens, 24 KiB",
        ),
        (
            "moe_plain.py:tiny",
            {"mesh": {"dp": 2}, "layout": [{"batch": "dp"}]},
            "8 experts, all on every rank; in each, a rank routes 128 rows of 64 tokens, 24 KiB",
        ),
        # 4 experts with 8 places for each of 8 sequences, half of them here
        ("moe_gshard.py:small", EP, "4 experts, 2 on each rank of ep; in each, a rank routes 128 rows, 20 KiB"),
    ],
)
def test_a_line_for_the_terminal(model: str, spec: dict[str, Any], line: str):
    assert describe_experts(built(model, spec).plan, STEP) == [f"2 layers of {line}"]


def test_layers_with_experts_of_their_own_count_are_told_apart():
    plan = built("moe_plain.py:tiny", EP).plan
    other = {**plan["experts"][1], "topk": 2, "rows": "2*batch*seq"}
    assert len(describe_experts({**plan, "experts": [plan["experts"][0], other]}, STEP)) == 2


def test_the_names_of_experts_are_cut_by_their_axis():
    build = built("moe_plain.py:tiny", EP)
    spec = parse_spec(yaml.safe_dump({"version": 1, **EP}), "spec.yaml")
    found = {d.name: d.mesh for d in names(build.named, "", (), spec).dimensions}
    assert (found["experts"], found["batch"], found["seq"]) == ("ep", "ep", "")


def test_the_places_of_an_expert_have_a_name():
    plan = built("moe_gshard.py:small", EP).plan
    assert "capacity" in plan["dims"]
    assert {e["shape"] for e in plan["collectives"] if e["forward"] == "all_to_all"} == {
        "experts@ep batch capacity d_model",
        "experts batch@ep capacity d_model",
    }
