"""Compile a handful of models and write each build into a folder of its own: `python write_builds.py FOLDER`.

It runs in a process of its own, because the order of a set of strings follows PYTHONHASHSEED.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[n]) for n in (1, 2)]

from compiled_zoo import compiled
from zoo import MODELS, spec

BUILDS = [
    ("gpt2", "dp2xtp2+sp"),
    ("gpt2", "tp2xd2"),
    ("llama", "tp2+sp"),
    ("llama", "tp2xd2"),
    ("llama_gqa", "kv2xq2"),
    ("phi3", "dp2xtp2+sp"),
    ("gemma2", "dp2xtp2+sp"),
    ("nanogpt", "dp2xtp2+sp"),
    ("nanogpt", "tp2xd2"),
    ("interleaved_qkv", "dp2xtp2+sp"),
    ("gpt2", "pp2xtp2+sp"),
    ("gemma2", "pp2xtp2+sp"),
]
PIPELINE = {"axis": "pp", "schedule": "interleaved", "microbatches": 4}


def folder(model: str, layout: str) -> str:
    """The name of a build's folder."""
    return f"{model}-{layout}"


if __name__ == "__main__":
    logging.getLogger("transformers").setLevel(logging.ERROR)
    for model, layout in BUILDS:
        document = spec(layout.removeprefix("pp2x"), MODELS[model])
        if layout.startswith("pp2x"):
            document = {**document, "mesh": {"pp": 2, **document["mesh"]}, "pipeline": PIPELINE}
        compiled(model, document, Path(sys.argv[1]) / folder(model, layout))
