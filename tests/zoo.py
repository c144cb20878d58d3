"""The models that everything is tested on, and what is true of each: the axes of every parameter, the legal specs.

Six are files in `models/`, as their authors would write them; the others are architectures of the transformers library
at small sizes. Sizes within a model differ wherever the architecture allows it, so that a mix-up shows; no dimension
has size 1. Dropout stays at each model's own default.

    model = MODELS["llama_gqa"]
    module = model.build()                  # an nn.Module, seeded by the caller
    batch = model.batch(seed=0)             # {"input_ids": ..., "labels": ...}, named as `forward` names them
    argument = model.write(tmp_path)        # what stands for MODEL on the command line
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import zoo_axes
from torch import Tensor, nn
from zoo_axes import Axes

FILES = Path(__file__).parent / "models"

Sizes = Mapping[str, int]  # a dimension's name -> its size


@dataclass(frozen=True)
class Model:
    """One model and what must be found in it.

    `axes` has every parameter once, a tied one under the name that `named_parameters` gives first; `tied` maps the
    other names of a tensor to that one. `legal` holds names of `SPECS`, and is a matter of sizes alone: each sharded
    dimension exists and divides.
    """

    name: str
    axes: Axes
    sizes: Sizes
    legal: frozenset[str]
    arguments: tuple[str, str] = ("input_ids", "labels")
    file: str | None = None  # "nanogpt.py:tiny", in models/
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])  # of the transformers library
    tied: Mapping[str, str] = field(default_factory=dict[str, str])
    ignore: int = -100  # the label that is not counted
    shifts: bool = False  # whether the model itself compares position i with label i + 1
    rows: int = 4
    length: int = 24

    def build(self) -> nn.Module:
        """The module with random weights, in training mode. Draws from torch's global generator."""
        if self.file is not None:
            file, factory = self.file.split(":")
            return getattr(load(file), factory)()
        from transformers import AutoConfig, AutoModelForCausalLM  # takes seconds: only when it is asked for

        return AutoModelForCausalLM.from_config(AutoConfig.for_model(**self.config)).train()

    def batch(self, seed: int = 0) -> dict[str, Tensor]:
        """Token ids and labels, both (rows, length) int64; the labels are a tensor of their own, unevenly ignored."""
        random = torch.Generator().manual_seed(seed)
        shape = (self.rows, self.length)
        ids = torch.randint(3, self.sizes["vocab"], shape, generator=random)
        labels = ids.clone() if self.shifts else torch.randint(3, self.sizes["vocab"], shape, generator=random)
        for row in range(1, self.rows):
            labels[row, self.length - 5 * row :] = self.ignore
        return dict(zip(self.arguments, (ids, labels), strict=True))

    def keywords(self) -> dict[str, Any]:
        """What `forward` is called with besides a batch."""
        return {} if self.file else {"use_cache": False}

    def loss(self, output: Any) -> Tensor:
        """The loss in what `forward` returned, in whichever form the model's author chose."""
        if isinstance(output, Tensor):
            return output
        return output["loss"] if isinstance(output, Mapping) else output[-1]

    def write(self, folder: Path) -> str:
        """What to give a command for MODEL: the file and its factory, or a folder with the model's `config.json`."""
        if self.file is not None:
            return str(FILES / self.file)
        target = folder / self.name
        target.mkdir(parents=True)
        (target / "config.json").write_text(json.dumps(dict(self.config), indent=2))
        return str(target)

    def axes_of(self, parameter: str) -> str:
        """The named axes of a parameter by its full name."""
        return self.axes[starred(parameter)]


def starred(parameter: str) -> str:
    """A parameter's name with the layer's number replaced: `h.3.attn.weight` -> `h.*.attn.weight`."""
    head, *rest = parameter.split(".")
    # The first number is the layer; a later one is a place inside the block.
    for index, part in enumerate(rest):
        if part.isdigit():
            return ".".join([head, *rest[:index], "*", *rest[index + 1 :]])
    return parameter


def load(file: str) -> ModuleType:
    """A file of `models/` as a module."""
    path = FILES / file
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---- specs ----------------------------------------------------------------------------------------------------------

_TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]


def _spec(mesh: dict[str, int], layout: list[dict[str, Any]]) -> dict[str, Any]:
    return {"version": 1, "mesh": mesh, "layout": layout}


SPECS: dict[str, dict[str, Any]] = {
    "dp2": _spec({"dp": 2}, [{"batch": "dp"}]),
    "dp4": _spec({"dp": 4}, [{"batch": "dp"}]),
    "tp2": _spec({"tp": 2}, _TENSOR),
    "tp4": _spec({"tp": 4}, _TENSOR),
    "tp2+sp": _spec({"tp": 2}, [*_TENSOR, {"seq": "tp"}]),
    "dp2xtp2": _spec({"dp": 2, "tp": 2}, [{"batch": "dp"}, *_TENSOR]),
    "dp2xtp2+sp": _spec({"dp": 2, "tp": 2}, [{"batch": "dp"}, *_TENSOR, {"seq": "tp"}]),
    # the residual stream is cut as well: weights in two directions
    "tp2xd2": _spec({"tp": 2, "d": 2}, [*_TENSOR, {"d_model": "d"}]),
    # more ranks than key and value heads: those heads are computed twice
    "kv2xq2": _spec(
        {"tp": 2, "tq": 2},
        [{"kv_heads": "tp"}, {"q_group": "tq"}, {"d_ff": ["tp", "tq"]}, {"vocab": ["tp", "tq"]}],
    ),
}


def spec(name: str, model: Model) -> dict[str, Any]:
    """The spec `name` for this model, as it would be read from YAML: with `vocab: pad` where vocab does not divide."""
    chosen = SPECS[name]
    target = next((rule["vocab"] for rule in chosen["layout"] if "vocab" in rule), [])
    ranks = 1
    for axis in [target] if isinstance(target, str) else target:
        ranks *= chosen["mesh"][axis]
    return chosen | ({"uneven": {"vocab": "pad"}} if model.sizes["vocab"] % ranks else {})


_DATA = {"dp2", "dp4"}
_TWO_WAYS = _DATA | {"tp2", "tp2+sp", "dp2xtp2", "dp2xtp2+sp", "tp2xd2"}
MHA = frozenset(_TWO_WAYS | {"tp4"})  # four heads
GQA = frozenset(_TWO_WAYS | {"kv2xq2"})  # two groups of heads: tp 4 has to split them
WIDE_GQA = frozenset(_TWO_WAYS | {"tp4", "kv2xq2"})  # four groups of two


# ---- models ---------------------------------------------------------------------------------------------------------

_TIED = {"lm_head.weight": "model.embed_tokens.weight"}
_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # the defaults lie outside a small vocabulary


def _library(
    name: str,
    model_type: str,
    axes: Axes,
    sizes: Sizes,
    legal: frozenset[str],
    *,
    tied: Mapping[str, str] | None = None,
    **config: Any,
) -> Model:
    """A model of the transformers library; with `tied`, its embedding is also its output matrix."""
    full = {"model_type": model_type, **_TOKENS, "tie_word_embeddings": tied is not None, **config}
    return Model(name, axes, sizes, legal, config=full, tied=tied or {}, shifts=True)


def _file(
    name: str, factory: str, axes: Axes, sizes: Sizes, legal: frozenset[str], *, arguments: tuple[str, str], **rest: Any
) -> Model:
    return Model(name, axes, sizes, legal, arguments=arguments, file=factory, **rest)


def _sizes(*, layers: int, d_model: int, d_head: int, d_ff: int, vocab: int, **rest: int) -> dict[str, int]:
    return {"layers": layers, "d_model": d_model, "d_head": d_head, "d_ff": d_ff, "vocab": vocab, **rest}


def _decoder_config(sizes: Sizes, **rest: Any) -> dict[str, Any]:
    """The library's words for the sizes of a decoder."""
    heads = sizes["heads"] if "heads" in sizes else sizes["kv_heads"] * sizes["q_group"]
    return {
        "num_hidden_layers": sizes["layers"],
        "hidden_size": sizes["d_model"],
        "num_attention_heads": heads,
        "num_key_value_heads": sizes.get("kv_heads", heads),
        "intermediate_size": sizes["d_ff"],
        "vocab_size": sizes["vocab"],
        "max_position_embeddings": 64,
        **rest,
    }


def _gpt2(name: str, *, vocab: int, tied: bool) -> Model:
    sizes = _sizes(layers=4, d_model=64, heads=4, d_head=16, d_ff=256, vocab=vocab, max_pos=32)
    return _library(
        name,
        "gpt2",
        zoo_axes.GPT2 if tied else zoo_axes.GPT2 | zoo_axes.HEAD,
        sizes,
        MHA,
        tied={"lm_head.weight": "transformer.wte.weight"} if tied else None,
        n_layer=4,
        n_embd=64,
        n_head=4,
        vocab_size=vocab,
        n_positions=32,
    )


def _neox(name: str, *, d_model: int, rotary: float) -> Model:
    sizes = _sizes(layers=3, d_model=d_model, heads=4, d_head=d_model // 4, d_ff=120, vocab=96)
    config = _decoder_config(sizes)
    del config["num_key_value_heads"]
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": rotary}
    return _library(name, "gpt_neox", zoo_axes.NEOX, sizes, MHA, **config, rope_parameters=rope)


def _opt() -> Model:
    sizes = _sizes(layers=2, d_model=40, heads=4, d_head=10, d_ff=112, vocab=97, max_pos=38)
    return _library(
        "opt",
        "opt",
        zoo_axes.OPT,
        sizes,
        MHA,
        tied={"lm_head.weight": "model.decoder.embed_tokens.weight"},
        num_hidden_layers=2,
        hidden_size=40,
        num_attention_heads=4,
        ffn_dim=112,
        vocab_size=97,
        max_position_embeddings=36,  # the table has two rows more
        word_embed_proj_dim=40,
    )


def _llama(name: str, q: str, sizes: Sizes, legal: frozenset[str], *, tied: bool) -> Model:
    axes = zoo_axes.gated_decoder(q, norms=zoo_axes.PRE_NORMS) | ({} if tied else zoo_axes.HEAD)
    return _library(name, "llama", axes, sizes, legal, tied=_TIED if tied else None, **_decoder_config(sizes))


def _mistral() -> Model:
    sizes = _sizes(layers=2, d_model=48, kv_heads=2, q_group=2, d_head=14, d_ff=104, vocab=97)
    axes = zoo_axes.gated_decoder(zoo_axes.GQA, norms=zoo_axes.PRE_NORMS) | zoo_axes.HEAD
    config = _decoder_config(sizes, head_dim=14, sliding_window=7)
    return _library("mistral_sliding", "mistral", axes, sizes, GQA, **config)


def _qwen2() -> Model:
    sizes = _sizes(layers=2, d_model=56, kv_heads=2, q_group=2, d_head=14, d_ff=136, vocab=96)
    axes = zoo_axes.gated_decoder(zoo_axes.GQA, norms=zoo_axes.PRE_NORMS, extra=zoo_axes.QWEN2_BIASES)
    return _library("qwen2", "qwen2", axes, sizes, GQA, tied=_TIED, **_decoder_config(sizes))


def _qwen3() -> Model:
    sizes = _sizes(layers=2, d_model=40, kv_heads=2, q_group=2, d_head=16, d_ff=88, vocab=97)
    extra = {"self_attn.q_norm.weight": "d_head", "self_attn.k_norm.weight": "d_head"}
    axes = zoo_axes.gated_decoder(zoo_axes.GQA, norms=zoo_axes.PRE_NORMS, extra=extra) | zoo_axes.HEAD
    return _library("qwen3", "qwen3", axes, sizes, GQA, **_decoder_config(sizes, head_dim=16))


def _phi3() -> Model:
    sizes = _sizes(layers=2, d_model=64, kv_heads=4, q_group=2, d_head=8, d_ff=72, vocab=96)
    config = _decoder_config(sizes, original_max_position_embeddings=64)
    return _library("phi3", "phi3", zoo_axes.PHI3, sizes, WIDE_GQA, **config)


def _gemma2() -> Model:
    sizes = _sizes(layers=4, d_model=48, kv_heads=2, q_group=2, d_head=16, d_ff=120, vocab=96)
    axes = zoo_axes.gated_decoder(zoo_axes.GQA, norms=zoo_axes.GEMMA2_NORMS)
    # layers alternate between a sliding window and full attention
    config = _decoder_config(sizes, head_dim=16, query_pre_attn_scalar=16, sliding_window=9)
    return _library("gemma2", "gemma2", axes, sizes, GQA, tied=_TIED, **config)


_NANOGPT_SIZES = _sizes(layers=4, d_model=48, heads=4, d_head=12, d_ff=192, vocab=96, max_pos=32)

ALL = (
    _file(
        "nanogpt",
        "nanogpt.py:tiny",
        zoo_axes.nanogpt_axes(bias=True),
        _NANOGPT_SIZES,
        MHA,
        arguments=("idx", "targets"),
        tied={"lm_head.weight": "transformer.wte.weight"},
        ignore=-1,
    ),
    _file(
        "nanogpt_without_bias",
        "nanogpt.py:tiny_without_bias",
        zoo_axes.nanogpt_axes(bias=False),
        _NANOGPT_SIZES | {"vocab": 97},
        MHA,
        arguments=("idx", "targets"),
        tied={"lm_head.weight": "transformer.wte.weight"},
        ignore=-1,
    ),
    _file(
        "nanogpt_manual",
        "nanogpt_manual.py:tiny",
        zoo_axes.NANOGPT_MANUAL,
        _sizes(layers=2, d_model=32, heads=4, d_head=8, d_ff=128, vocab=97, max_pos=40),
        MHA,
        arguments=("idx", "targets"),
        ignore=-1,
    ),
    _file(
        "llama_style",
        "llama_style.py:tiny",
        zoo_axes.LLAMA_STYLE,
        _sizes(layers=2, d_model=64, kv_heads=2, q_group=4, d_head=8, d_ff=176, vocab=96),
        GQA,
        arguments=("tokens", "targets"),
    ),
    _file(
        "interleaved_qkv",
        "interleaved_qkv.py:tiny",
        zoo_axes.INTERLEAVED,
        _sizes(layers=3, d_model=40, heads=4, d_head=10, d_ff=104, vocab=96),
        MHA,
        arguments=("tokens", "targets"),
    ),
    _file(
        "fused_gate_up",
        "fused_gate_up.py:tiny",
        zoo_axes.FUSED_GATE_UP,
        _sizes(layers=2, d_model=56, kv_heads=2, q_group=2, d_head=16, d_ff=88, vocab=97, max_pos=64),
        GQA,
        arguments=("input_ids", "labels"),
        shifts=True,
    ),
    _file(
        "tied_functional",
        "tied_functional.py:tiny",
        zoo_axes.TIED_FUNCTIONAL,
        _sizes(layers=3, d_model=32, heads=4, d_head=8, d_ff=112, vocab=97, max_pos=40),
        MHA,
        arguments=("idx", "targets"),
        ignore=0,
    ),
    _gpt2("gpt2", vocab=97, tied=True),
    _gpt2("gpt2_untied", vocab=96, tied=False),
    _neox("gpt_neox", d_model=48, rotary=1.0),
    _neox("gpt_neox_partial_rotary", d_model=64, rotary=0.25),
    _opt(),
    _llama(
        "llama",
        zoo_axes.MHA,
        _sizes(layers=2, d_model=64, heads=4, d_head=16, d_ff=176, vocab=96),
        MHA,
        tied=False,
    ),
    _llama(
        "llama_gqa",
        zoo_axes.GQA,
        _sizes(layers=3, d_model=64, kv_heads=2, q_group=4, d_head=8, d_ff=176, vocab=96),
        GQA,
        tied=False,
    ),
    _llama(
        "llama_gqa_tied",
        zoo_axes.GQA,
        _sizes(layers=2, d_model=48, kv_heads=4, q_group=2, d_head=6, d_ff=112, vocab=97),
        WIDE_GQA,
        tied=True,
    ),
    _mistral(),
    _qwen2(),
    _qwen3(),
    _phi3(),
    _gemma2(),
)

MODELS: dict[str, Model] = {model.name: model for model in ALL}
