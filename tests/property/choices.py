"""What a drawn model is made of: every choice that its author could have made otherwise.

`Choices()` is the plainest model; the first word of each list is the plainest choice, so that a failing draw shrinks
towards it. Its text is a constructor call that names only what is not plain: a failing draw is a test when it is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from hypothesis import strategies as st

LONGEST = 16  # the positions that a model has

WORDS: dict[str, tuple[Any, ...]] = {
    "layers": (1, 2, 3),
    "width": (16, 24, 32),
    "heads": (4, 2, 6),
    "kv_heads": (4, 2, 1, 6),
    "size": (4, 6, 8),  # of a head: heads * size need not be the width
    "hidden": (24, 16, 36, 40, 64),
    "vocab": (20, 24, 32, 33),
    "norm": ("LayerNorm", "LayerNorm without bias", "RMSNorm by hand", "RMSNorm + 1", "F.rms_norm", "nn.RMSNorm"),
    "norms": ("pre", "post", "sandwich", "shared"),  # shared: one norm in front of both parts
    "residual": ("sequential", "parallel", "scaled"),  # scaled: by a learned vector and a learned number
    "bias": (False, True),
    "qkv": ("separate", "packed", "interleaved", "unequal", "grouped", "q and kv", "einsum"),
    "split": ("chunk", "split", "unbind", "slices"),
    "transpose": ("transpose", "permute", "einsum"),
    "positions": ("learned", "learned parameter", "rotary halves", "rotary pairs", "rotary partial", "alibi", "none"),
    "tables": ("forward", "buffer", "inv_freq"),  # where rotary angles come from
    "qk_norm": (False, True),
    "repeat": ("repeat_interleave", "expand", "enable_gqa", "broadcast"),  # keys and values for a group of queries
    "attention": ("causal", "masked", "by hand"),
    "product": ("@", "einsum", "bmm"),
    "mask": ("tril buffer", "tril", "arange", "triu of -inf", "where"),
    "scale": ("after", "before", "half each"),
    "softmax": ("plain", "float32"),
    "cap": (False, True),  # of attention scores
    "merge": ("reshape", "contiguous view", "permute flatten"),
    "value_size": (0, 6),  # of a head's values, if it is not `size`
    "about": ("nothing", "head gate", "channel gate", "head scale", "inner norm", "talking heads", "unit length"),
    "mlp": ("plain", "gated", "fused", "fused slices", "fused unbind", "matrices"),
    "activation": ("gelu", "tanh gelu", "silu", "relu squared"),
    "within": ("nothing", "inner norm", "low rank", "third matrix", "softmax", "mixture", "shifted"),
    "experts": (0, 2, 4, 6, 8),  # in place of the MLP; they have its activation, and its gate
    "topk": (2, 1, 3),
    "expert_form": ("sorted", "chosen", "batched"),
    "expert_bias": (False, True),
    "weights": ("plain", "normalised", "softmax of the chosen"),
    "balance": ("nothing", "shares", "z"),
    "dropout": (0.0, 0.1),
    "stream": ("nothing", "lambdas", "first", "kept", "centred", "detached", "narrow embedding"),
    "second": ("alike", "hidden", "activation", "window"),  # what is different in every second block
    "shared": ("nothing", "layer", "mlp", "attention"),
    "embedding": ("plain", "scaled", "normed"),
    "final_norm": (True, False),
    "head": ("free", "biased", "tied", "F.linear", "matmul"),  # the last three read the embedding
    "logits": ("plain", "scaled", "capped", "divided by a buffer"),
    "shift": ("no", "slices", "hidden", "pad labels", "cat labels"),
    "loss": ("view", "flatten", "transpose", "smooth", "by hand", "sum"),
}


@dataclass(frozen=True, repr=False)
class Choices:
    """One model. Sizes are numbers, everything else is a word of `WORDS`."""

    layers: int = 1
    width: int = 16
    heads: int = 4
    kv_heads: int = 4
    size: int = 4
    hidden: int = 24
    vocab: int = 20
    norm: str = "LayerNorm"
    norms: str = "pre"
    residual: str = "sequential"
    bias: bool = False
    qkv: str = "separate"
    split: str = "chunk"
    transpose: str = "transpose"
    positions: str = "learned"
    tables: str = "forward"
    qk_norm: bool = False
    repeat: str = "repeat_interleave"
    attention: str = "causal"
    product: str = "@"
    mask: str = "tril buffer"
    scale: str = "after"
    softmax: str = "plain"
    cap: bool = False
    merge: str = "reshape"
    value_size: int = 0
    about: str = "nothing"
    mlp: str = "plain"
    activation: str = "gelu"
    within: str = "nothing"
    experts: int = 0
    topk: int = 2
    expert_form: str = "sorted"
    expert_bias: bool = False
    weights: str = "plain"
    balance: str = "nothing"
    dropout: float = 0.0
    stream: str = "nothing"
    second: str = "alike"
    shared: str = "nothing"
    embedding: str = "plain"
    final_norm: bool = True
    head: str = "free"
    logits: str = "plain"
    shift: str = "no"
    loss: str = "view"

    def __repr__(self) -> str:
        chosen = [(f.name, getattr(self, f.name)) for f in fields(self)]
        plain = {f.name: f.default for f in fields(self)}
        return f"Choices({', '.join(f'{name}={value!r}' for name, value in chosen if value != plain[name])})"

    @property
    def values(self) -> int:
        """How long a head's value is."""
        return self.value_size or self.size

    @property
    def group(self) -> int:
        """How many query heads share a key."""
        return self.heads // self.kv_heads


def consistent(c: Choices) -> Choices:
    """The same choices without those that contradict an earlier one, or that no code would read."""
    if c.qkv in ("packed", "interleaved", "einsum") or c.heads % c.kv_heads:
        c = replace(c, kv_heads=c.heads)
    c = replace(c, split=c.split if c.qkv in ("packed", "interleaved", "unequal", "q and kv") else "chunk")
    if c.qkv == "unequal" and c.split in ("chunk", "unbind"):
        c = replace(c, split="split")
    if c.positions == "alibi" and c.attention == "causal":
        c = replace(c, attention="masked")
    return _attention(replace(c, tables=c.tables if c.positions.startswith("rotary") else "forward"))


def _attention(c: Choices) -> Choices:
    by_hand = c.attention == "by hand"
    if not by_hand:
        c = replace(c, product="@", softmax="plain", cap=False)
    if c.attention == "causal":
        c = replace(c, mask="tril buffer", scale="after")
    if c.group == 1:
        c = replace(c, repeat="repeat_interleave")
    elif (c.repeat == "enable_gqa" and by_hand) or (c.repeat == "broadcast" and not by_hand):
        c = replace(c, repeat="expand")
    if c.repeat == "broadcast":
        c = replace(c, product="@")
    if c.qkv not in ("separate", "einsum") or c.value_size == c.size:
        c = replace(c, value_size=0)
    return _blocks(c)


def _blocks(c: Choices) -> Choices:
    if c.norms == "shared":
        c = replace(c, residual="parallel")
    if c.layers == 1:
        c = replace(c, shared="nothing", second="alike")
    if c.shared != "nothing":
        c = replace(c, second="alike")
    if c.second == "window" and c.attention == "causal":
        c = replace(c, attention="masked")
    if c.stream == "narrow embedding" and c.head in ("tied", "F.linear", "matmul"):
        c = replace(c, head="free")
    return _experts(c)


def _experts(c: Choices) -> Choices:
    if not c.experts:
        return replace(c, topk=2, expert_form="sorted", expert_bias=False, weights="plain", balance="nothing")
    mlp = {"matrices": "plain", "fused slices": "fused", "fused unbind": "fused", "gated": "fused"}.get(c.mlp, c.mlp)
    return replace(c, topk=min(c.topk, c.experts), mlp=mlp, within="nothing")


@st.composite
def choices(draw: st.DrawFn) -> Choices:
    """A model; each word is the plain one more often than any other."""
    plain = Choices()
    words = {word: draw(st.just(getattr(plain, word)) | st.sampled_from(known)) for word, known in WORDS.items()}
    return consistent(Choices(**words))
