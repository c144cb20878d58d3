"""A build folder of tests/small_gpt.py for any sizes of dp and tp, written by hand as a compiler would write it."""

import json
from pathlib import Path
from typing import Any

import torch
from recorded import recorded
from small_gpt import FF, HEADS, SEQ, VOCAB, D, SmallGPT

from graphpar.codegen.train import train_program

MODEL = '''
"""SmallGPT on mesh dp x tp."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphpar.runtime import (
    Mesh, Parameters, all_reduce, all_reduce_count, grad_all_reduce, vocab_cross_entropy, vocab_embedding,
)

class Attention(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.tp = mesh["tp"]
        d = 32 // self.tp.size
        self.qkv = Parameters(weight=mesh.parameter(3 * d, 32, grad_sum="dp", sharded="tp"),
                              bias=mesh.parameter(3 * d, grad_sum="dp", sharded="tp"))
        self.out = Parameters(weight=mesh.parameter(32, d, grad_sum="dp", sharded="tp"),
                              bias=mesh.parameter(32, grad_sum="dp"))

    def forward(self, x: Tensor) -> Tensor:
        x = grad_all_reduce(x, self.tp)
        qkv = F.linear(x, self.qkv.weight, self.qkv.bias)
        q, k, v = (t.unflatten(-1, (-1, 8)).transpose(1, 2) for t in qkv.chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return all_reduce(F.linear(y, self.out.weight), self.tp) + self.out.bias

class LayerNorm(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.weight = mesh.parameter(32, grad_sum="dp")
        self.bias = mesh.parameter(32, grad_sum="dp")

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (32,), self.weight, self.bias)

class Block(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.tp = mesh["tp"]
        ff = 64 // self.tp.size
        self.ln_1 = LayerNorm(mesh)
        self.attn = Attention(mesh)
        self.ln_2 = LayerNorm(mesh)
        self.up = Parameters(weight=mesh.parameter(ff, 32, grad_sum="dp", sharded="tp"),
                             bias=mesh.parameter(ff, grad_sum="dp", sharded="tp"))
        self.down = Parameters(weight=mesh.parameter(32, ff, grad_sum="dp", sharded="tp"),
                               bias=mesh.parameter(32, grad_sum="dp"))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        h = F.linear(grad_all_reduce(self.ln_2(x), self.tp), self.up.weight, self.up.bias)
        return x + all_reduce(F.linear(F.gelu(h), self.down.weight), self.tp) + self.down.bias

class SmallGPT(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.mesh = mesh
        self.tp = mesh["tp"]
        vocab = -(-97 // self.tp.size)
        self.wte = Parameters(weight=mesh.parameter(vocab, 32, grad_sum="dp", sharded="tp"))
        self.wpe = Parameters(weight=mesh.parameter(16, 32, grad_sum="dp"))
        self.blocks = nn.ModuleList(Block(mesh) for _ in range(2))
        self.ln_f = LayerNorm(mesh)
        self.register_buffer("scale", mesh.buffer(32))
        self.register_buffer("position", mesh.buffer(16, dtype=torch.int64), persistent=False)
        self.calls = 0

    def forward(self, input_ids: Tensor, labels: Tensor, count: Tensor) -> Tensor:
        self.calls += 1
        # trouble
        x = all_reduce(vocab_embedding(input_ids, self.wte.weight, self.tp), self.tp) * self.scale
        x = x + self.wpe.weight[self.position[: input_ids.shape[1]]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(grad_all_reduce(self.ln_f(x), self.tp), self.wte.weight)
        labels = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return vocab_cross_entropy(logits, labels, self.tp, vocab=97) / count

    def count(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        return (labels[:, 1:] != -100).sum()
'''

_TP = ["tp"]
# what is cut, by the end of the name: (dim, factors of that dim)
_CUT: dict[str, tuple[int, list[list[Any]]]] = {
    "wte.weight": (0, [[VOCAB, _TP]]),  # padded to a multiple of tp
    "qkv.weight": (0, [[3, []], [HEADS, _TP], [D // HEADS, []]]),
    "qkv.bias": (0, [[3, []], [HEADS, _TP], [D // HEADS, []]]),
    "out.weight": (1, [[HEADS, _TP], [D // HEADS, []]]),
    "up.weight": (0, [[FF, _TP]]),
    "up.bias": (0, [[FF, _TP]]),
    "down.weight": (1, [[FF, _TP]]),
}


def build(folder: Path, *, dp: int = 1, tp: int = 1, trouble: str = "") -> Path:
    """Write the build. `trouble` is a statement for the start of the model's forward."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL.lstrip().replace("# trouble", trouble or "pass"))
    (folder / "train.py").write_text(train_program("SmallGPT", {"dp": dp, "tp": tp}))
    tape, _ = recorded(SmallGPT)
    (folder / "init.json").write_text(json.dumps(tape))
    (folder / "plan.json").write_text(json.dumps(plan(dp, tp)))
    return folder


def plan(dp: int, tp: int) -> dict[str, Any]:
    """Its plan.json."""
    source = SmallGPT()
    inputs = [{"name": name, "dtype": "int64", "axes": "batch@dp seq", "cut": {"0": ["dp"]}}
              for name in ("input_ids", "labels")]  # fmt: skip
    parameters = {
        name: {**_entry(name, parameter, tp), "trainable": True, "grad_sum": ["dp"],
               "aliases": ["head.weight"] if name == "wte.weight" else []}
        for name, parameter in source.named_parameters()
    }  # fmt: skip
    buffers = {name: {**_entry(name, buffer, tp), "persistent": name == "scale"}
               for name, buffer in source.named_buffers()}  # fmt: skip
    return {
        "version": 1, "class": "SmallGPT", "mesh": {"dp": dp, "tp": tp}, "data_axes": ["dp"], "inputs": inputs,
        "parameters": parameters, "buffers": buffers, "count": True, "labels": "same", "vocab": VOCAB, "max_seq": SEQ,
    }  # fmt: skip


def _entry(name: str, tensor: torch.Tensor, tp: int) -> dict[str, Any]:
    dims: list[Any] = [[[[size, []]]] for size in tensor.shape]
    local = list(tensor.shape)
    for end, (dim, factors) in _CUT.items():
        if name.endswith(end) and not (end == "wte.weight" and tp == 1):
            dims[dim] = [factors if end != "wte.weight" else [[-(-VOCAB // tp) * tp, _TP]]]
            local[dim] = -(-tensor.shape[dim] // tp)
    return {"shape": list(tensor.shape), "local_shape": local, "dims": dims,
            "dtype": str(tensor.dtype).removeprefix("torch.")}  # fmt: skip
