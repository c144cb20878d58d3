"""The models of the zoo with as many layers as a pipeline needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import ModuleType
from typing import Any

import zoo
from torch import nn

from graphpar.capture.capture import Signature
from graphpar.verify.origin import Origin

FROM_FILES: Mapping[str, Callable[[ModuleType, int], nn.Module]] = {
    "nanogpt": lambda file, layers: file.GPT(file.GPTConfig(n_layer=layers)),
    "nanogpt_without_bias": lambda file, layers: file.GPT(
        file.GPTConfig(n_layer=layers, bias=False, dropout=0.0, vocab_size=97)
    ),
    "nanogpt_manual": lambda file, layers: file.GPT(file.GPTConfig(n_layer=layers)),
    "llama_style": lambda file, layers: file.Transformer(file.ModelArgs(n_layers=layers)),
    "interleaved_qkv": lambda file, layers: file.GPT(layers=layers),
    "fused_gate_up": lambda file, layers: file.Decoder(layers=layers),
    "tied_functional": lambda file, layers: file.TinyGPT(layers=layers),
}
KEYS = ("num_hidden_layers", "n_layer")  # the library's words for the number of layers


@cache
def deep(name: str, layers: int) -> Origin:
    """The model with so many layers; what is captured stays."""
    model = zoo.MODELS[name]
    build = partial(_from_file, name, layers) if model.file else replace(model, config=_config(name, layers)).build
    return Origin(build, Signature(tuple(model.arguments), model.keywords()))


def _from_file(name: str, layers: int) -> nn.Module:
    file = zoo.MODELS[name].file
    assert file is not None
    return FROM_FILES[name](zoo.load(file.split(":")[0]), layers)


def _config(name: str, layers: int) -> dict[str, Any]:
    config = dict(zoo.MODELS[name].config)
    config |= {key: layers for key in KEYS if key in config}
    if kinds := config.get("layer_types"):
        config["layer_types"] = [kinds[i % len(kinds)] for i in range(layers)]
    return config
