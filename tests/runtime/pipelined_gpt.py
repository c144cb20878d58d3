"""A small tied GPT, and the same cut into stages by hand as a compiler would cut it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphpar.codegen.train import train_program
from graphpar.runtime import Mesh, Parameters, all_reduce, dropout, grad_all_reduce
from graphpar.runtime.plan import Plan, read_plan
from graphpar.runtime.stages import Stages
from graphpar.schedules.actions import Order, homes, spell
from graphpar.schedules.orders import order

VOCAB, SEQ, D, LAYERS = 128, 6, 8, 8

MODEL = '''"""The stages of tests/runtime/pipelined_gpt.py."""

import sys

sys.path.insert(0, {here!r})
from pipelined_gpt import Cut


def GPT(mesh):
    return Cut(*{arguments!r}, layers={layers}).model(mesh)
'''


class SourceBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(D)
        self.mix = nn.Linear(D, 3 * D)
        self.up = nn.Linear(D, 2 * D)
        self.down = nn.Linear(2 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.mix(self.ln(x)).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]
        return x + self.down(F.gelu(self.up(x)))


class Source(nn.Module):
    """As its author would write it."""

    def __init__(self, layers: int = LAYERS, *, skip: bool = False) -> None:
        super().__init__()
        self.skip = skip
        self.wte = nn.Embedding(VOCAB, D)
        self.wpe = nn.Embedding(SEQ, D)
        self.h = nn.ModuleList(SourceBlock() for _ in range(layers))
        self.ln_f = nn.LayerNorm(D)
        self.head = nn.Linear(D, VOCAB, bias=False)
        self.head.weight = self.wte.weight
        self.register_buffer("scale", torch.arange(1, D + 1) / D)

    def forward(self, idx: Tensor, targets: Tensor) -> Tensor:
        x = self.wte(idx) * self.scale + self.wpe.weight[: idx.shape[1]]
        start = x
        for block in self.h:
            x = block(x)
        x = x + start if self.skip else x
        return F.cross_entropy(self.head(self.ln_f(x * self.scale)).flatten(0, 1), targets.flatten())


def pair(mesh: Mesh, *shape: int) -> Parameters:
    return Parameters(weight=mesh.parameter(*shape, grad_sum="dp"), bias=mesh.parameter(shape[0], grad_sum="dp"))


class Block(nn.Module):
    def __init__(self, mesh: Mesh, p: float) -> None:
        super().__init__()
        self.random, self.p, self.tp = mesh.random("dp", "tp"), p, mesh["tp"]
        self.replay = mesh.replay
        wide = 2 * D // self.tp.size
        self.ln, self.mix = pair(mesh, D), pair(mesh, 3 * D, D)
        self.up = Parameters(weight=mesh.parameter(wide, D, grad_sum="dp", sharded="tp"),
                             bias=mesh.parameter(wide, grad_sum="dp", sharded="tp"))  # fmt: skip
        self.down = Parameters(weight=mesh.parameter(D, wide, grad_sum="dp", sharded="tp"),
                               bias=mesh.parameter(D, grad_sum="dp"))  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x, (D,), self.ln.weight, self.ln.bias)
        q, k, v = F.linear(y, self.mix.weight, self.mix.bias).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]
        y = F.linear(grad_all_reduce(x, self.tp), self.up.weight, self.up.bias)
        y = dropout(F.gelu(y), self.p, self.training, self.random)
        return x + all_reduce(F.linear(y, self.down.weight), self.tp) + self.down.bias


class Part(nn.Module):
    """One stage of any kind; `extra` crosses as well: a "mask" and integers, or a "skip" of all layers."""

    def __init__(self, mesh: Mesh, layers: range, *, first: bool, last: bool, extra: str, p: float) -> None:
        super().__init__()
        self.first, self.last, self.extra, self.uses = first, last, extra, True
        tensors: dict[str, Any] = {"h": nn.ModuleDict({str(i): Block(mesh, p) for i in layers})}
        if first:
            tensors["wpe"] = Parameters(weight=mesh.parameter(SEQ, D, grad_sum="dp"))
        if first or last:
            tensors["wte"] = Parameters(weight=mesh.parameter(VOCAB, D, grad_sum="dp"))
            self.register_buffer("scale", mesh.buffer(D))
        if last:
            tensors["ln_f"] = pair(mesh, D)
        for name, module in tensors.items():
            self.add_module(name, module)

    def forward(self, *received: Tensor, **inputs: Tensor) -> Any:
        rest = received[1:]
        if self.first:
            idx = inputs["idx"]
            x = F.embedding(idx, self.wte.weight) * self.scale + self.wpe.weight[: idx.shape[1]]
            rest = {"mask": (idx > 3, idx.sum(-1)), "skip": (x,), "": ()}[self.extra]
        else:
            x = received[0]
        for block in self.h.values():
            x = block(x)
        if not self.last:
            return (x, *rest) if rest else x
        x = x + rest[0] if self.extra == "skip" and self.uses else x
        x = F.layer_norm(x * self.scale, (D,), self.ln_f.weight, self.ln_f.bias)
        logits = F.linear(x, self.wte.weight).flatten(0, 1)
        return F.cross_entropy(logits, inputs["targets"].flatten(), reduction="sum") / inputs["count"]


class Cut:
    """The stages of a schedule, with their plan and order."""

    def __init__(self, name: str, ranks: int, virtual: int, microbatches: int, *, dp: int = 1, tp: int = 1, extra: str = "",
                 p: float = 0.0, layers: int = LAYERS) -> None:  # fmt: skip
        self.order: Order = order(name, ranks, virtual, microbatches)
        found = homes(self.order)
        self.homes = [found[stage] for stage in range(ranks * virtual)]
        self.schedule = "\n".join(",".join(map(spell, row)) for row in self.order.values()) + "\n"
        self.sizes = {"dp": dp, "pp": ranks, "tp": tp}
        per = layers // len(self.homes)
        self.layers = [range(i * per, (i + 1) * per) for i in range(len(self.homes))]
        self.extra, self.p, self.name, self.microbatches, self.count = extra, p, name, microbatches, layers

    def model(self, mesh: Mesh) -> Stages:
        last = len(self.homes) - 1
        ends = tuple(sorted({self.homes[0], self.homes[last]}))
        makers = [
            (home, lambda s=stage, r=layers: Part(
                mesh, r, first=s == 0, last=s == last, extra=self.extra, p=self.p))
            for stage, (home, layers) in enumerate(zip(self.homes, self.layers))
        ]  # fmt: skip
        return GPT(mesh, "pp", makers, {"wte.weight": ends} if len(ends) > 1 else {})

    def build(self, folder: Path, tape: dict[str, Any]) -> Path:
        """Write a build folder."""
        folder.mkdir(parents=True, exist_ok=True)
        arguments = self.name, self.sizes["pp"], len(self.homes) // self.sizes["pp"], self.microbatches
        (folder / "model.py").write_text(
            MODEL.format(here=str(Path(__file__).parent), arguments=arguments, layers=self.count)
        )
        (folder / "train.py").write_text(train_program("GPT", self.sizes, pipeline=True))
        (folder / "init.json").write_text(json.dumps(tape))
        (folder / "schedule.csv").write_text(self.schedule)
        self.plan(folder)
        return folder

    def plan(self, folder: Path) -> Plan:
        (folder / "plan.json").write_text(json.dumps(self.document()))
        return read_plan(folder / "plan.json")

    def document(self) -> dict[str, Any]:
        source = Source(self.count)
        ends = [0, len(self.homes) - 1]
        x = {
            "shape": [f"batch/{self.sizes['dp']}", "seq", str(D)],
            "dtype": kind(torch.get_default_dtype()),
            "grad": True,
        }
        rest = [{"shape": [f"batch/{self.sizes['dp']}", "seq"], "dtype": "bool", "grad": False},
                {"shape": [f"batch/{self.sizes['dp']}"], "dtype": "int64", "grad": False}]  # fmt: skip
        crossing = [x, *{"mask": rest, "skip": [x], "": []}[self.extra]]
        stages = [
            {"class": "Part", "rank": home, "layers": [layers.start, layers.stop],
             "inputs": (["idx"] if i == 0 else []) + (["targets", "count"] if i == ends[1] else []),
             "sends": [] if i == ends[1] else crossing, "collectives": []}
            for i, (home, layers) in enumerate(zip(self.homes, self.layers))
        ]  # fmt: skip
        tensors = {
            name: self.entry(name, tensor) for name, tensor in [*source.named_parameters(), *source.named_buffers()]
        }
        inputs = [{"name": name, "dtype": "int64", "cut": {"0": ["dp"]}} for name in ("idx", "targets")]
        return {
            "version": 1, "class": "GPT", "mesh": self.sizes, "data_axes": ["dp"], "inputs": inputs,
            "parameters": {name: entry for name, entry in tensors.items() if name != "scale"},
            "buffers": {"scale": tensors["scale"]}, "labels": "next", "vocab": VOCAB, "max_seq": SEQ,
            "pipeline": {"axis": "pp", "schedule": self.name, "microbatches": self.microbatches, "stages": stages},
        }  # fmt: skip

    def entry(self, name: str, tensor: Tensor) -> dict[str, Any]:
        end = len(self.homes) - 1
        held = {"wte": [0, end], "scale": [0, end], "wpe": [0], "ln_f": [end]}.get(name.split(".")[0])
        if held is None:
            held = [i for i, layers in enumerate(self.layers) if int(name.split(".")[1]) in layers]
        dims: list[Any] = [[[[size, []]]] for size in tensor.shape]
        local = list(tensor.shape)
        cut = {"up.weight": 0, "up.bias": 0, "down.weight": 1}.get(".".join(name.split(".")[-2:]))
        if cut is not None:
            dims[cut] = [[[tensor.shape[cut], ["tp"]]]]
            local[cut] //= self.sizes["tp"]
        return {"shape": list(tensor.shape), "local_shape": local, "dtype": kind(torch.get_default_dtype()), "trainable": name != "scale",
                "dims": dims, "stages": sorted(set(held)),
                "aliases": ["head.weight"] if name == "wte.weight" else []}  # fmt: skip


class GPT(Stages):
    def count(self, idx: Tensor, targets: Tensor) -> Tensor:
        return (targets != -100).sum()


def kind(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def batches(microbatches: int, rows: int, dp: int = 1, at: int = 0) -> list[dict[str, Tensor]]:
    """Microbatches of `rows` rows over all ranks; the part of rank `at` of `dp`."""
    draw = torch.Generator().manual_seed(5)
    ids = torch.randint(VOCAB, (microbatches, rows, SEQ + 1), generator=draw)
    ids = ids.unflatten(1, (dp, rows // dp))[:, at]
    return [{"idx": part[:, :-1].contiguous(), "targets": part[:, 1:].contiguous()} for part in ids]


def fill(model: Stages, source: Sequence[tuple[str, Tensor]]) -> None:
    """Give the shards the values of the source."""
    values = dict(source)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            tensor.copy_(part(values[name], tensor, model.mesh))


def part(whole: Tensor, like: Tensor, mesh: Mesh) -> Tensor:
    """This rank's part of a tensor of the source."""
    for dim, (full, local) in enumerate(zip(whole.shape, like.shape)):
        if full != local:
            return whole.chunk(full // local, dim)[mesh["tp"].rank]
    return whole
