"""Compile large Llamas in a process of its own and print seconds and peak memory as JSON: `compile_large.py 8B,405B`."""

from __future__ import annotations

import json
import logging
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
logging.getLogger("transformers").setLevel(logging.ERROR)

SIZES = {  # layers, hidden, heads, ffn
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


def compile_once(name: str) -> float:
    """Seconds of computing from a configuration to the text of the build; other processes do not count."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    from graphpar.capture.capture import Signature
    from graphpar.compile import compile_model
    from graphpar.language.parse import parse_spec

    layers, hidden, heads, ffn = SIZES[name]
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=8,
        intermediate_size=ffn,
        vocab_size=128256,
        use_cache=False,
    )
    start = time.process_time()
    signature = Signature(("input_ids", "labels"), {"use_cache": False})
    source = {"model": name, "spec_file": "spec.yaml"}
    build = compile_model(
        lambda: AutoModelForCausalLM.from_config(config), signature, parse_spec(SPEC, "spec.yaml"), source
    )
    seconds = time.process_time() - start
    elements = 0
    for entry in build.plan["parameters"].values():
        size = 1
        for n in entry["shape"]:
            size *= n
        elements += size
    assert abs(elements / 1e9 - int(name.removesuffix("B"))) < 1, elements
    return seconds


def main() -> None:
    """Compile each model of the list, in order."""
    times: list[tuple[str, float]] = [(name, compile_once(name)) for name in sys.argv[1].split(",")]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"times": times, "peak": peak}))


if __name__ == "__main__":
    main()
