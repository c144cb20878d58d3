"""Decoder families of the transformers library, and the ops that each of them exports."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from graphpar.capture.capture import Captured, Signature, capture
from graphpar.compiler import simplify
from graphpar.names.named import name
from graphpar.ops.rules import RULES
from graphpar.ops.shapes import LEAVES, SHAPES
from graphpar.place.check import unknown_ops

FILE = Path(__file__).parents[2] / "tests" / "ops" / "families.yaml"

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
EXPERTS = {"num_experts_per_tok": 2, "output_router_logits": True}
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
GROUPS = {"n_routed_experts": 8, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "apertus": {},
    "arcee": HEAD,
    "biogpt": {},
    "bitnet": {},
    "bloom": {"n_layer": 2, "n_head": 4},
    "codegen": GPT | {"rotary_dim": 8},
    "cohere": {},
    "cohere2": {},
    "deepseek_v3": EXPERTS | LATENT | GROUPS | {"moe_intermediate_size": 48},
    "ernie4_5": HEAD,
    "exaone4": HEAD,
    "falcon": {},
    "gemma": HEAD,
    "gemma2": HEAD,
    "gemma3_text": HEAD,
    "glm": HEAD | {"pad_token_id": 0},
    "glm4": HEAD | {"pad_token_id": 0},
    "gpt2": GPT,
    "gpt_bigcode": GPT,
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    "gpt_neox": {},
    "gpt_oss": EXPERTS | HEAD | {"num_local_experts": 8, "output_router_logits": False, "sliding_window": 16},
    "gptj": GPT | {"rotary_dim": 8},
    "granite": {},
    "helium": HEAD,
    "hunyuan_v1_dense": HEAD,
    "llama": {},
    "ministral": HEAD,
    "mistral": {},
    "mixtral": EXPERTS | {"num_local_experts": 8},
    "mpt": {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "expansion_ratio": 2},
    "nemotron": HEAD,
    "olmo": {},
    "olmo2": {},
    "olmo3": {},
    "olmoe": EXPERTS | {"num_experts": 8},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},
    "persimmon": {},
    "phi": {},
    "phi3": {"pad_token_id": 0},
    "qwen2": {},
    "qwen3": HEAD,
    "qwen3_moe": EXPERTS | HEAD | {"num_experts": 8, "moe_intermediate_size": 48},
    "seed_oss": HEAD,
    "smollm3": {"pad_token_id": 0},
    "stablelm": {},
    "starcoder2": {},
    "xglm": {"d_model": 64, "num_layers": 2, "attention_heads": 4, "ffn_dim": 128},
}


def captured(family: str) -> Captured:
    """A small model of a family."""
    from transformers import AutoConfig, AutoModelForCausalLM  # takes seconds: only when it is asked for

    logging.getLogger("transformers").setLevel(logging.ERROR)
    config = AutoConfig.for_model(family, **SIZES | dict(FAMILIES[family]))
    signature = Signature(("input_ids", "labels"), {"use_cache": False})
    return capture(lambda: AutoModelForCausalLM.from_config(config).train(), signature)


def exported(family: str) -> list[str]:
    """The ops of a family's graph, as placement gets it, without those that need no rule because nothing feeds them."""
    graph = simplify(captured(family).graph)
    needed = {n.op for n in unknown_ops(name(graph))}
    found = {node.op for node in graph.nodes}
    return sorted(op for op in found if has_rule(op) or op in needed)


def has_rule(op: str) -> bool:
    """Whether the table has a row for an op, or needs none."""
    return op in RULES or op in SHAPES or op in LEAVES


def recorded() -> dict[str, list[str]]:
    """The ops of every family, as they were found last."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def record(families: Iterable[tuple[str, list[str]]]) -> str:
    """The text of the file that holds them."""
    head = "# What decoder families of transformers export: `python -m tools.ops --families` writes this file.\n"
    lines = [f"{family}: [{', '.join(map(_quoted, ops))}]\n" for family, ops in families]
    return head + "".join(lines)


def _quoted(op: str) -> str:
    return f'"{op}"' if op in ("and", "or", "pad") or "." in op else op
