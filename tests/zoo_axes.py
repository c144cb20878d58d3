"""The named axes of every parameter of every model in the zoo, read off the models' sources.

A table maps a parameter's name, with `*` for the number of the layer, to its axes in storage order. A refined
dimension is written by its own name: rotary positions cut `d_head` in halves, and it is still `d_head`.
"""

from __future__ import annotations

from collections.abc import Mapping

Axes = Mapping[str, str]

# the products that the query heads of an attention are made of
MHA = "(heads d_head)"
GQA = "(kv_heads q_group d_head)"

HEAD = {"lm_head.weight": "vocab d_model"}
PRE_NORMS = ("input_layernorm", "post_attention_layernorm")
GEMMA2_NORMS = (*PRE_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")


def _norms(*names: str, bias: bool = True) -> dict[str, str]:
    return {f"{name}.{part}": "d_model" for name in names for part in (("weight", "bias") if bias else ("weight",))}


def _biased(name: str, out: str, into: str) -> dict[str, str]:
    return {f"{name}.weight": f"{out} {into}", f"{name}.bias": out}


def _under(prefix: str, axes: Axes) -> dict[str, str]:
    return {f"{prefix}.{name}": text for name, text in axes.items()}


def gated_decoder(q: str, *, norms: tuple[str, ...], extra: Axes | None = None) -> dict[str, str]:
    """A decoder with separate q, k, v and gate, up; `q` is MHA or GQA."""
    kv = "(kv_heads d_head)" if "kv_heads" in q else "(heads d_head)"
    block = {
        "self_attn.q_proj.weight": f"{q} d_model",
        "self_attn.k_proj.weight": f"{kv} d_model",
        "self_attn.v_proj.weight": f"{kv} d_model",
        "self_attn.o_proj.weight": f"d_model {q}",
        "mlp.gate_proj.weight": "d_ff d_model",
        "mlp.up_proj.weight": "d_ff d_model",
        "mlp.down_proj.weight": "d_model d_ff",
        **_norms(*norms, bias=False),
        **(extra or {}),
    }
    ends = {"embed_tokens.weight": "vocab d_model", "norm.weight": "d_model"}
    return _under("model", {**ends, **_under("layers.*", block)})


GPT2 = {
    "transformer.wte.weight": "vocab d_model",
    "transformer.wpe.weight": "max_pos d_model",
    # this architecture stores its matrices (in, out)
    "transformer.h.*.attn.c_attn.weight": "d_model (3 heads d_head)",
    "transformer.h.*.attn.c_attn.bias": "(3 heads d_head)",
    "transformer.h.*.attn.c_proj.weight": "(heads d_head) d_model",
    "transformer.h.*.attn.c_proj.bias": "d_model",
    "transformer.h.*.mlp.c_fc.weight": "d_model d_ff",
    "transformer.h.*.mlp.c_fc.bias": "d_ff",
    "transformer.h.*.mlp.c_proj.weight": "d_ff d_model",
    "transformer.h.*.mlp.c_proj.bias": "d_model",
    **_norms("transformer.h.*.ln_1", "transformer.h.*.ln_2", "transformer.ln_f"),
}

NEOX = {
    "gpt_neox.embed_in.weight": "vocab d_model",
    **_under(
        "gpt_neox.layers.*",
        {
            **_norms(*PRE_NORMS),
            **_biased("attention.query_key_value", "(heads 3 d_head)", "d_model"),
            **_biased("attention.dense", "d_model", MHA),
            **_biased("mlp.dense_h_to_4h", "d_ff", "d_model"),
            **_biased("mlp.dense_4h_to_h", "d_model", "d_ff"),
        },
    ),
    **_norms("gpt_neox.final_layer_norm"),
    **HEAD,
}

OPT = {
    "model.decoder.embed_tokens.weight": "vocab d_model",
    "model.decoder.embed_positions.weight": "max_pos d_model",
    **_norms("model.decoder.final_layer_norm"),
    **_under(
        "model.decoder.layers.*",
        {
            **_biased("self_attn.q_proj", MHA, "d_model"),
            **_biased("self_attn.k_proj", MHA, "d_model"),
            **_biased("self_attn.v_proj", MHA, "d_model"),
            **_biased("self_attn.out_proj", "d_model", MHA),
            **_biased("fc1", "d_ff", "d_model"),
            **_biased("fc2", "d_model", "d_ff"),
            **_norms("self_attn_layer_norm", "final_layer_norm"),
        },
    ),
}

QWEN2_BIASES = {
    "self_attn.q_proj.bias": GQA,
    "self_attn.k_proj.bias": "(kv_heads d_head)",
    "self_attn.v_proj.bias": "(kv_heads d_head)",
}

PHI3 = {
    "model.embed_tokens.weight": "vocab d_model",
    "model.layers.*.self_attn.qkv_proj.weight": "(kv_heads q_group d_head + kv_heads d_head + kv_heads d_head) d_model",
    "model.layers.*.self_attn.o_proj.weight": f"d_model {GQA}",
    "model.layers.*.mlp.gate_up_proj.weight": "(2 d_ff) d_model",
    "model.layers.*.mlp.down_proj.weight": "d_model d_ff",
    **_under("model.layers.*", _norms(*PRE_NORMS, bias=False)),
    "model.norm.weight": "d_model",
    **HEAD,
}


def nanogpt_axes(*, bias: bool) -> dict[str, str]:
    axes = {
        "transformer.wte.weight": "vocab d_model",
        "transformer.wpe.weight": "max_pos d_model",
        **_norms("transformer.h.*.ln_1", "transformer.h.*.ln_2", "transformer.ln_f"),
        **_biased("transformer.h.*.attn.c_attn", "(3 heads d_head)", "d_model"),
        **_biased("transformer.h.*.attn.c_proj", "d_model", MHA),
        **_biased("transformer.h.*.mlp.c_fc", "d_ff", "d_model"),
        **_biased("transformer.h.*.mlp.c_proj", "d_model", "d_ff"),
    }
    return axes if bias else {name: text for name, text in axes.items() if not name.endswith(".bias")}


NANOGPT_MANUAL = {
    "pos_emb": "1 max_pos d_model",
    "tok_emb.weight": "vocab d_model",
    **_under(
        "blocks.*",
        {
            **_norms("ln_1", "ln_2"),
            **_biased("attn.key", MHA, "d_model"),
            **_biased("attn.query", MHA, "d_model"),
            **_biased("attn.value", MHA, "d_model"),
            **_biased("attn.proj", "d_model", MHA),
            **_biased("mlp.0", "d_ff", "d_model"),
            **_biased("mlp.2", "d_model", "d_ff"),
        },
    ),
    **_norms("ln_f"),
    "head.weight": "vocab d_model",
}

LLAMA_STYLE = {
    "tok_embeddings.weight": "vocab d_model",
    **_under(
        "layers.*",
        {
            "attention.wq.weight": f"{GQA} d_model",
            "attention.wk.weight": "(kv_heads d_head) d_model",
            "attention.wv.weight": "(kv_heads d_head) d_model",
            "attention.wo.weight": f"d_model {GQA}",
            "feed_forward.w1.weight": "d_ff d_model",
            "feed_forward.w2.weight": "d_model d_ff",
            "feed_forward.w3.weight": "d_ff d_model",
            **_norms("attention_norm", "ffn_norm", bias=False),
        },
    ),
    "norm.weight": "d_model",
    "output.weight": "vocab d_model",
}

INTERLEAVED = {
    "embed.weight": "vocab d_model",
    **_under(
        "blocks.*",
        {
            **_norms("norm"),
            **_biased("attn.qkv", "(heads 3 d_head)", "d_model"),
            **_biased("attn.out", "d_model", MHA),
            **_biased("mlp.0", "d_ff", "d_model"),
            **_biased("mlp.2", "d_model", "d_ff"),
        },
    ),
    **_norms("norm"),
    **_biased("unembed", "vocab", "d_model"),
}

FUSED_GATE_UP = {
    "tokens.weight": "vocab d_model",
    "positions.weight": "max_pos d_model",
    **_under(
        "layers.*",
        {
            **_norms("pre_attn", "pre_mlp", bias=False),
            "attn.q.weight": f"{GQA} d_model",
            "attn.kv.weight": "(2 kv_heads d_head) d_model",
            "attn.o.weight": f"d_model {GQA}",
            "attn.q_norm.weight": "d_head",
            "attn.k_norm.weight": "d_head",
            "mlp.gate_up.weight": "(2 d_ff) d_model",
            "mlp.down.weight": "d_model d_ff",
        },
    ),
    "norm.weight": "d_model",
    "head.weight": "vocab d_model",
}

TIED_FUNCTIONAL = {
    "pos": "max_pos d_model",
    "out_bias": "vocab",
    "emb.weight": "vocab d_model",
    **_under(
        "blocks.*",
        {
            "attn.in_proj_weight": "(3 heads d_head) d_model",
            "attn.in_proj_bias": "(3 heads d_head)",
            **_biased("attn.out_proj", "d_model", MHA),
            **_norms("attn_norm", "mlp_norm"),
            **_biased("up", "d_ff", "d_model"),
            **_biased("down", "d_model", "d_ff"),
        },
    ),
    **_norms("norm"),
}
