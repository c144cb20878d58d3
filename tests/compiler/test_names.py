"""Names: the axes of every parameter are found with no annotation, from what ops do and never from sizes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from builds import ONES, captured, compiled
from parts import Attention, Block, Decoder
from torch import nn
from zoo import MODELS, Model, starred

from graphpar.capture.capture import Signature, capture
from graphpar.compiler import simplify
from graphpar.ir.axes import spell_all
from graphpar.ir.graph import Graph
from graphpar.names.named import Named, name

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


def axes_of(named: Named) -> dict[str, str]:
    """The axes of every parameter under its first name."""
    return {
        full: spell_all(node.axes or ())
        for node in named.graph
        if node.op == "parameter"
        for full in named.graph.members(node.attrs["name"])
    }


def named_of(module: nn.Module) -> Named:
    return name(simplify(capture(lambda: module, Signature(("input_ids", "labels"), {})).graph))


@every_model
def test_every_parameter_has_the_axes_a_person_would_give_it(model: Model) -> None:
    found = axes_of(name(simplify(captured(model).graph)))
    assert {starred(n): text for n, text in found.items()} == dict(model.axes)
    assert set(found) == {n for n, _ in model.build().named_parameters()}


@every_model
def test_every_name_has_its_size_and_no_op_is_unknown(model: Model) -> None:
    named = name(simplify(captured(model).graph))
    sizes = {n: s for n, s in named.sizes().items() if n in model.sizes}
    assert sizes == {n: model.sizes[n] for n in sizes}
    words = {word for text in model.axes.values() for word in text.replace("(", " ").replace(")", " ").split()}
    # rotary positions cut a head's dimension in two: then it is no single one
    assert {w for w in words if w.isidentifier()} - {"d_head"} <= set(named.sizes())
    assert {"batch", "seq"} <= set(named.sizes())
    assert named.unknown == ()


@every_model
def test_the_plan_lists_every_name_of_a_tied_tensor(model: Model) -> None:
    parameters = compiled(model, "ones").plan["parameters"]
    found = {alias: n for n, entry in parameters.items() for alias in entry.get("aliases", ())}
    assert found == dict(model.tied)


# ---- sizes never unify --------------------------------------------------------------------------------------------


def equal() -> nn.Module:
    """All sizes 8: batch does not occur in the model; vocab, d_model, heads, d_head, d_ff and positions do."""
    attention = Attention(64, heads=8)
    attention.q, attention.k, attention.v = (nn.Linear(8, 64) for _ in range(3))
    attention.o = nn.Linear(64, 8)

    class Wide(Attention):
        def forward(self, x):
            B, T, _ = x.shape
            q, k, v = (w(x).view(B, T, 8, 8).transpose(1, 2) for w in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.o(y.transpose(1, 2).reshape(B, T, 64))

    attention.__class__ = Wide
    model = Decoder([Block(8, attention, nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)))], width=8)
    model.tok, model.pos, model.head = nn.Embedding(8, 8), nn.Embedding(8, 8), nn.Linear(8, 8, bias=False)
    return model


def test_sizes_that_coincide_give_no_other_names() -> None:
    """Every dimension has size 8, and still each has its own name."""
    assert axes_of(named_of(equal())) == {
        "tok.weight": "vocab d_model",
        "pos.weight": "max_pos d_model",
        "blocks.0.norm1.weight": "d_model",
        "blocks.0.norm1.bias": "d_model",
        "blocks.0.norm2.weight": "d_model",
        "blocks.0.norm2.bias": "d_model",
        **{f"blocks.0.attn.{w}.weight": "(heads d_head) d_model" for w in "qkv"},
        **{f"blocks.0.attn.{w}.bias": "(heads d_head)" for w in "qkv"},
        "blocks.0.attn.o.weight": "d_model (heads d_head)",
        "blocks.0.attn.o.bias": "d_model",
        "blocks.0.mlp.0.weight": "d_ff d_model",
        "blocks.0.mlp.0.bias": "d_ff",
        "blocks.0.mlp.2.weight": "d_model d_ff",
        "blocks.0.mlp.2.bias": "d_model",
        "norm.weight": "d_model",
        "norm.bias": "d_model",
        "head.weight": "vocab d_model",
    }


def test_a_batch_as_large_as_a_head_stays_a_batch() -> None:
    """Batch and seq are symbols: nothing in the graph can have their size by accident."""
    graph: Graph = captured(MODELS["gpt2"]).graph
    sizes = {s for n in graph for s in n.shape if not isinstance(s, int)}
    free = {str(x) for s in sizes for x in s.free_symbols}
    assert free == {"batch", "seq"}


def test_one_device_is_a_mesh_like_any_other() -> None:
    plan = compiled(MODELS["gpt2"], ONES).plan
    assert plan["collectives"] == []
    assert all(entry["shape"] == entry["local_shape"] for entry in plan["parameters"].values())


def test_a_grouped_projection_without_gqa_flag_is_grouped_all_the_same() -> None:
    """Keys repeated by expand and reshape, by repeat_interleave or by the kernel: the same names."""

    def attention(repeat):
        class Grouped(nn.Module):
            def __init__(self):
                super().__init__()
                self.q, self.k, self.v, self.o = (nn.Linear(24, n, bias=False) for n in (24, 12, 12, 24))

            def forward(self, x):
                B, T, C = x.shape
                q = self.q(x).view(B, T, 6, 4).transpose(1, 2)
                k, v = (w(x).view(B, T, 3, 4).transpose(1, 2) for w in (self.k, self.v))
                y = repeat(q, k, v, B, T)
                return self.o(y.transpose(1, 2).reshape(B, T, C))

        return Grouped()

    def by_kernel(q, k, v, B, T):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    def by_interleave(q, k, v, B, T):
        k, v = (t.repeat_interleave(2, dim=1) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def by_expand(q, k, v, B, T):
        k, v = (t[:, :, None].expand(B, 3, 2, T, 4).reshape(B, 6, T, 4) for t in (k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    torch.manual_seed(0)
    found = [
        axes_of(named_of(Decoder([Block(24, attention(repeat))], width=24)))
        for repeat in (by_kernel, by_interleave, by_expand)
    ]
    assert found[0] == found[1] == found[2]
    assert found[0]["blocks.0.attn.q.weight"] == "(kv_heads q_group d_head) d_model"
    assert found[0]["blocks.0.attn.k.weight"] == "(kv_heads d_head) d_model"
    assert found[0]["blocks.0.attn.o.weight"] == "d_model (kv_heads q_group d_head)"
