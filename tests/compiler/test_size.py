"""Depth costs nothing: the text does not depend on the number of layers, nor do time and memory on the model's size."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
import zoo
from zoo import MODELS

from graphpar.capture.capture import Signature, capture
from graphpar.compile import Build, compile_captured
from graphpar.language.parse import parse_spec

LARGE = Path(__file__).parent / "compile_large.py"


@cache
def deep(name: str, layers: int) -> Build:
    """A model of the transformers library with another number of layers."""
    config = dict(MODELS[name].config)
    config |= {k: layers for k in ("n_layer", "num_hidden_layers") if k in config}

    def construct() -> Any:
        from transformers import AutoConfig, AutoModelForCausalLM

        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**config)).train()

    spec = parse_spec(yaml.safe_dump(zoo.spec("dp2xtp2+sp", MODELS[name]), sort_keys=False), "spec.yaml")
    found = capture(construct, Signature(("input_ids", "labels"), {"use_cache": False}))
    return compile_captured(found, spec, {"model": name, "spec_file": "spec.yaml"})


def without_header(build: Build) -> list[str]:
    """The program: all lines after the module's docstring, which says how many parameters there are."""
    lines = build.files["model.py"].splitlines()
    return lines[lines.index('"""') + 1 :]


@pytest.mark.parametrize(("name", "few", "many"), [("gpt2", 4, 48), ("gemma2", 4, 24)])
def test_more_layers_change_one_number_of_the_text(name: str, few: int, many: int) -> None:
    """gemma2 alternates two kinds of layer; both programs loop."""
    short, long = without_header(deep(name, few)), without_header(deep(name, many))
    different = [(a, b) for a, b in zip(short, long, strict=True) if a != b]
    assert len(different) == 1
    a, b = different[0]
    count = {"gpt2": (few, many), "gemma2": (few // 2, many // 2)}[name]
    assert a.replace(f"range({count[0]})", f"range({count[1]})") == b


def test_more_layers_are_more_entries_of_the_same_plan() -> None:
    """Per layer of the source: its parameters under their own names, and as many collectives."""
    short, long = deep("gpt2", 4).plan, deep("gpt2", 48).plan
    assert len(long["parameters"]) - len(short["parameters"]) == 44 * 12
    for n in range(48):
        own = f"transformer.h.{n}.mlp.c_fc.weight"
        assert long["parameters"][own] == short["parameters"]["transformer.h.0.mlp.c_fc.weight"]
    (few,), (many,) = ([e for e in p["collectives"] if "loop" in e] for p in (short, long))
    assert few["bodies"] == many["bodies"] and len(few["kinds"]) == 4 and len(many["kinds"]) == 48


def compile_large(*names: str) -> dict[str, Any]:
    """Compile in a process of its own: [(name, seconds), ..] and the peak of its memory in bytes."""
    done = subprocess.run(
        [sys.executable, LARGE, ",".join(names)], check=True, capture_output=True, text=True, timeout=600
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_model_of_405_billion_parameters_compiles_on_a_laptop() -> None:
    """At most 20 s and 3 GB, and little more than a model of 8 billion: depth is folded, widths are numbers."""
    found = compile_large("8B", "8B", "405B")
    times = found["times"][1:]  # the first one imports the library
    small, large = (seconds for _, seconds in times)
    assert large < 20, times
    assert found["peak"] < 3e9
    assert large < 2.5 * small, times  # 1.9 measured
