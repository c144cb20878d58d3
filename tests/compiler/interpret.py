"""The meaning of a graph: every op evaluated by torch, written for reading and not for speed.

evaluate(graph, {"input_ids": ids, "weight": w})    # values of inputs, parameters and buffers by name
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sympy
import torch
import torch.nn.functional as F
from torch import Tensor

from graphpar.ir.graph import Graph, Node

BATCH = sympy.Symbol("batch", integer=True, positive=True)
SEQ = sympy.Symbol("seq", integer=True, positive=True)


def evaluate(graph: Graph, given: Mapping[str, Tensor], sizes: Mapping[sympy.Symbol, int]) -> dict[Node, Tensor]:
    """The value of every node, in order; asserts that each has the shape and dtype that its node declares."""
    values: dict[Node, Tensor] = {}
    for node in graph.nodes:
        shape = [number(s, sizes) for s in node.shape]
        if "name" in node.attrs and node.op in ("input", "parameter", "buffer"):
            value = given[node.attrs["name"]]
        else:
            args = [values[a] if isinstance(a, Node) else number(a, sizes) for a in node.args]
            attrs = {k: number(v, sizes) for k, v in node.attrs.items()}
            value = OPS[node.op](args, attrs, shape, node)
        assert list(value.shape) == shape, (node, list(value.shape))
        values[node] = value
    return values


def number(value: Any, sizes: Mapping[sympy.Symbol, int]) -> Any:
    """A size or scalar with batch and seq filled in."""
    if isinstance(value, sympy.Expr):
        value = value.subs(sizes)
        return int(value) if value.is_Integer else float(value)
    return tuple(number(v, sizes) for v in value) if isinstance(value, tuple) else value


Op = Callable[[list[Any], dict[str, Any], list[int], Node], Tensor]


def plain(function: Callable[..., Any]) -> Op:
    """An op whose arguments are those of torch."""

    def run(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
        return torch.as_tensor(function(*args))

    return run


def compare(name: str) -> Op:
    """A comparison, which torch wants with a tensor first."""
    return plain(lambda a, b: getattr(torch, name)(torch.as_tensor(a), b))


def _dtype(node: Node) -> torch.dtype:
    return getattr(torch, node.dtype)


def _cut(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    index = slice(attrs["start"], attrs["stop"], attrs["step"])
    return args[0][(slice(None),) * attrs["dim"] + (index,)]


def _segment(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    return args[0].split(attrs["sizes"], dim=attrs["dim"])[attrs["index"]]


def _linear(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    x, w, bias = args
    return F.linear(x, w.T if attrs.get("transposed") else w, bias)


def _cross_entropy(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    logits, labels = args[:2]
    options = {"ignore_index": attrs["ignore"], "label_smoothing": attrs["smoothing"]}
    return F.cross_entropy(logits.movedim(-1, 1), labels, reduction=attrs["reduction"], **options)


def _sdpa(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    q, k, v, mask = args
    options = {"is_causal": attrs["causal"], "scale": attrs["scale"], "enable_gqa": attrs["gqa"]}
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)


def _where(args: list[Any], attrs: dict[str, Any], shape: list[int], node: Node) -> Tensor:
    return torch.where(*args)


OPS: dict[str, Op] = {
    **{w: plain(getattr(torch, w)) for w in "add mul neg exp sin cos tanh sigmoid relu abs".split()},
    **{w: compare(w) for w in "eq ne lt le gt ge sub".split()},
    "div": plain(torch.div),
    "pow": plain(torch.pow),
    "and": plain(torch.logical_and),
    "or": plain(torch.logical_or),
    "logical_not": plain(torch.logical_not),
    "where": _where,
    "gelu": plain(F.gelu),
    "silu": plain(F.silu),
    "upcast": plain(lambda x: x),
    "cast": lambda a, k, s, n: a[0].to(_dtype(n)),
    "reshape": lambda a, k, s, n: a[0].reshape(s),
    "expand": lambda a, k, s, n: a[0].expand(s),
    "unsqueeze": lambda a, k, s, n: a[0].unsqueeze(k["dim"]),
    "permute": lambda a, k, s, n: a[0].permute(k["order"]),
    "slice": _cut,
    "select": lambda a, k, s, n: a[0].select(k["dim"], k["index"]),
    "piece": lambda a, k, s, n: a[0].chunk(k["count"], dim=k["dim"])[k["index"]],
    "segment": _segment,
    "cat": lambda a, k, s, n: torch.cat(a, dim=k["dim"]),
    "stack": lambda a, k, s, n: torch.stack(a, dim=k["dim"]),
    "pad": lambda a, k, s, n: F.pad(a[0], k["widths"], value=k["value"]),
    "repeat_interleave": lambda a, k, s, n: a[0].repeat_interleave(k["repeats"], dim=k["dim"]),
    "arange": lambda a, k, s, n: torch.arange(k["start"], k["stop"], k["step"], dtype=_dtype(n)),
    "full": lambda a, k, s, n: torch.full(s, k["value"], dtype=_dtype(n)),
    "tril": lambda a, k, s, n: a[0].tril(k["diagonal"]),
    "triu": lambda a, k, s, n: a[0].triu(k["diagonal"]),
    "cumsum": lambda a, k, s, n: a[0].cumsum(k["dim"]).to(_dtype(n)),
    "diff": lambda a, k, s, n: a[0].diff(dim=k["dim"], prepend=a[1] if len(a) > 1 else None),
    "index": lambda a, k, s, n: a[0][tuple(slice(None) if i is None else i for i in a[1:])],
    "sum": lambda a, k, s, n: a[0].sum(k["dims"], keepdim=k["keep"]),
    "mean": lambda a, k, s, n: a[0].mean(k["dims"], keepdim=k["keep"]),
    "amax": lambda a, k, s, n: a[0].amax(k["dims"], keepdim=k["keep"]),
    "amin": lambda a, k, s, n: a[0].amin(k["dims"], keepdim=k["keep"]),
    "var": lambda a, k, s, n: a[0].var(k["dims"], keepdim=k["keep"], correction=k["correction"]),
    "softmax": lambda a, k, s, n: a[0].softmax(k["dim"]),
    "log_softmax": lambda a, k, s, n: a[0].log_softmax(k["dim"]),
    "linear": _linear,
    "matmul": plain(torch.matmul),
    "einsum": lambda a, k, s, n: torch.einsum(k["equation"], *a),
    "embedding": lambda a, k, s, n: F.embedding(a[1], a[0]),
    "layer_norm": lambda a, k, s, n: F.layer_norm(a[0], a[0].shape[-k["dims"] :], a[1], a[2], k["eps"]),
    "rms_norm": lambda a, k, s, n: F.rms_norm(a[0], a[0].shape[-k["dims"] :], a[1], k["eps"]),
    "cross_entropy": _cross_entropy,
    "sdpa": _sdpa,
    "dropout": lambda a, k, s, n: a[0],
}
