"""Decoder families of the transformers library beyond the zoo: each is compiled, cut and proven from its text.

What the zoo proves by running, this shows for what else people train: their code is captured as it is, every op has its
rule, and the program's states follow from its text.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import pytest
import yaml

from graphpar.capture.capture import Captured, Signature, capture
from graphpar.check.check import check_program
from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec

logging.getLogger("transformers").setLevel(logging.ERROR)

SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "max_position_embeddings": 64,
}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64}
HEAD = {"head_dim": 16}
FAMILIES: dict[str, dict[str, Any]] = {
    "apertus": {},
    "arcee": HEAD,
    "biogpt": {},
    "bitnet": {},
    "codegen": GPT | {"rotary_dim": 8},
    "cohere": {},
    "cohere2": {},
    "ernie4_5": HEAD,
    "exaone4": HEAD,
    "gemma": HEAD,
    "gemma3_text": HEAD,
    "gpt_bigcode": GPT,
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "gptj": GPT | {"rotary_dim": 8},
    "granite": {},
    "helium": HEAD,
    "hunyuan_v1_dense": HEAD,
    "ministral": HEAD,
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "expansion_ratio": 2},
    "nemotron": HEAD,
    "olmo": {},
    "olmo2": {},
    "olmo3": {},
    "persimmon": {},
    "phi": {},
    "seed_oss": HEAD,
    "stablelm": {},
    "starcoder2": {},
}
DATA = {"bloom": {"n_layer": 2, "n_head": 4}, "falcon": {}}  # heads or d_ff are not found: data parallel alone
TENSOR = [{"batch": "dp"}, {"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]


@cache
def captured(family: str) -> Captured:
    """A small model of a family."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **SIZES | (FAMILIES | DATA)[family])
    signature = Signature(("input_ids", "labels"), {"use_cache": False})
    return capture(lambda: AutoModelForCausalLM.from_config(config).train(), signature)


@pytest.mark.parametrize("family", [*FAMILIES, *DATA])
def test_a_family_is_cut_and_proven(family: str) -> None:
    layout = TENSOR[:1] if family in DATA else TENSOR
    document = {"version": 1, "mesh": {"dp": 2, "tp": 2}, "layout": layout}
    spec = parse_spec(yaml.safe_dump(document, sort_keys=False), "spec.yaml")
    build = compile_captured(captured(family), spec, {"model": family, "spec_file": "spec.yaml"})
    assert check_program(build.files["model.py"], build.plan) == []
    assert any(p["sharded"] for p in build.plan["parameters"].values()) == (family in FAMILIES)
