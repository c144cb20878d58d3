"""Builds whose reasons are tested: each model is captured once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import statistics_model
import zoo
from compiled_zoo import origin, parsed

from graphpar.capture.capture import Signature
from graphpar.compiler import compile_captured
from graphpar.explain.explained import Explained, explained
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin

MODELS = Path(__file__).parents[1] / "models"
TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]
FILES = ("nanogpt", "nanogpt_manual", "llama_style", "fused_gate_up", "tied_functional")
MIXTURES = {"moe_plain": "tiny", "moe_gshard": "small"}


def spec(mesh: dict[str, Any], layout: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    return {"version": 1, "mesh": mesh, "layout": layout, "uneven": {"vocab": "pad"}, **rest}


def stages(**rest: Any) -> dict[str, Any]:
    return {"axis": "pp", "schedule": "1f1b", "microbatches": 1, **rest}


EXPERTS: dict[str, dict[str, Any]] = {
    "ep2": spec({"ep": 2}, [{"batch": "ep"}], moe={"experts": "ep"}),
    "ep2xdp2": spec({"dp": 2, "ep": 2}, [{"batch": ["dp", "ep"]}], moe={"experts": "ep"}),
    "ep=dp": spec({"dp": 2, "aliases": {"ep": "dp"}}, [{"batch": "dp"}], moe={"experts": "ep"}),
    "ep2xtp2+sp": spec({"ep": 2, "tp": 2}, [{"batch": "ep"}, *TENSOR, {"seq": "tp"}], moe={"experts": "ep"}),
    "pp2xep2": spec({"pp": 2, "ep": 2}, [{"batch": "ep"}], moe={"experts": "ep"}, pipeline=stages()),
    "the same tokens": spec({"ep": 2}, [], moe={"experts": "ep"}),
    "gathered tokens": spec({"ep": 2}, [{"batch": "ep"}], moe={"experts": "ep", "dispatch": "allgather"}),
}
FEED = {"at": "layers.*.feed_forward", "layout": [{"d_ff": "tp"}]}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "stages": (
        "llama_style",
        spec({"pp": 2, "tp": 2}, [*TENSOR, {"seq": "tp"}], pipeline=stages(microbatches=4)),
    ),
    "tied stages": ("nanogpt", spec({"pp": 2, "dp": 2}, [{"batch": "dp"}], pipeline=stages(microbatches=2))),
    "run again": ("llama_style", spec({"tp": 2}, TENSOR, regions=[{"at": "layers.*", "recompute": True}])),
    "region": ("llama_style", spec({"tp": 2}, [{"heads": "tp"}, {"vocab": "tp"}], regions=[FEED])),
    "statistics": ("statistics", spec({"tp": 2, "d": 2}, [{"d_ff": "tp"}, {"d_model": "d"}])),
}


@cache
def source(name: str) -> Origin:
    if name in zoo.MODELS:
        return origin(name)
    if name == "statistics":
        return Origin(statistics_model.Model, Signature(("ids", "labels"), {}))
    opened = open_model(str(MODELS / f"{name}.py:{MIXTURES[name]}"))
    return Origin(opened.construct, opened.signature)


def built(name: str, document: Mapping[str, Any], folder: Path) -> Path:
    """Write a build."""
    made = compile_captured(source(name).captured, parsed(document), {"model": name, "spec_file": "layout.yaml"})
    made.write(folder)
    return folder


def known(build: Path) -> Explained:
    """The reasons of a build."""
    return explained(json.loads((build / "plan.json").read_text()), (build / "spec.yaml").read_text(), {})


def cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A model, what its layout is called, and the spec."""
    for name in FILES:
        model = zoo.MODELS[name]
        yield from ((name, legal, zoo.spec(legal, model)) for legal in sorted(model.legal))
    for name in MIXTURES:
        yield from ((name, layout, document) for layout, document in EXPERTS.items())
    yield from ((name, layout, document) for layout, (name, document) in OTHERS.items())
