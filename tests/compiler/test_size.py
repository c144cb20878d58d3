"""Depth costs nothing: the text does not depend on the number of layers, nor do time and memory on the model's size."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml
import zoo
from zoo import MODELS

from graphpar.capture.capture import Signature, capture
from graphpar.compiler import Build, compile_captured
from graphpar.language.parse import parse_spec

LARGE = {  # layers, hidden, heads, ffn
    "8B": (32, 4096, 32, 14336),
    "405B": (126, 16384, 128, 53248),
}
SPEC = """
version: 1
mesh: {dp: 128, tp: 8}
layout:
  - batch: dp
  - kv_heads: tp
  - d_ff: tp
  - vocab: tp
  - seq: tp
"""


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


@pytest.mark.parametrize(("name", "few", "many"), [("gpt2", 4, 48), ("gemma2", 4, 12)])
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


def command(folder: Path, name: str) -> tuple[float, int]:
    """`graphpar compile` of a Llama, from its configuration to the files: seconds of computing, peak memory in bytes."""
    layers, hidden, heads, ffn = LARGE[name]
    config = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": ffn,
    }
    config |= {"model_type": "llama", "num_key_value_heads": 8, "vocab_size": 128256}
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaForCausalLM"]}))
    (folder / "spec.yaml").write_text(SPEC)
    words = ["compile", str(folder / name), str(folder / "spec.yaml"), "-o", str(folder / "build"), "--force"]
    return used("-m", "graphpar", *words)


def used(*arguments: str) -> tuple[float, int]:
    """Seconds of computing and peak memory in bytes of a Python process."""
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


@pytest.mark.slow
def test_a_model_of_405_billion_parameters_compiles_on_a_laptop(tmp_path: Path) -> None:
    """At most 3 GB, 20 s where importing takes 5 s, and little more than a model with a quarter of the layers."""
    imports, _ = used("-c", "import torch, transformers.models.llama.modeling_llama")
    small, _ = command(tmp_path, "8B")
    large, peak = command(tmp_path, "405B")
    plan = json.loads((tmp_path / "build" / "plan.json").read_text())
    assert sum(prod(entry["shape"]) for entry in plan["parameters"].values()) == pytest.approx(405.9e9, rel=1e-3)
    assert peak < 3e9
    assert large < 4 * imports, (imports, large)  # both are slower where other work shares the cores
    assert large < 2 * small, (small, large)
