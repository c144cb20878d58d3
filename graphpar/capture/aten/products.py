"""ATen calls that sum over a dimension, look up along one, or normalise."""

from __future__ import annotations

from graphpar.capture.aten.call import Call, Handler, Result, other
from graphpar.capture.aten.elements import cast
from graphpar.ir.graph import Node


def linear(call: Call) -> Node:
    """x w^T + b."""
    x, w = call.args[:2]
    return call.node("linear", x, w, call.arg(2, "bias"))


def addmm(call: Call) -> Node:
    """b + x w, the weight stored as (in, out); or a product and something added, each of them scaled."""
    added, x, y = call.args[:3]
    beta, alpha = call.arg(3, "beta", 1), call.arg(4, "alpha", 1)
    if beta == alpha == added.rank == 1:
        return call.node("linear", x, y, added, transposed=True)
    product = Node("matmul", (x, y), {}, call.shape, call.dtype, call.origin)
    scaled = [
        v if factor == 1 else Node("mul", (v, factor), {}, v.shape, v.dtype, call.origin)
        for v, factor in ((added, beta), (product, alpha))
    ]
    return call.node("add", *scaled)


def matmul(call: Call) -> Node:
    """A product over the last dim of the first and the second-last of the second operand."""
    return call.node("matmul", *call.args[:2])


def einsum(call: Call) -> Node:
    """An einsum."""
    return call.node("einsum", *call.args[1], equation=call.args[0].replace(" ", ""))


def sdpa(call: Call) -> Node:
    """Scaled dot-product attention."""
    q, k, v = call.args[:3]
    return call.node(
        "sdpa", q, k, v, call.arg(3, "attn_mask"),
        dropout=call.arg(4, "dropout_p", 0.0), causal=call.arg(5, "is_causal", False),
        scale=call.kwargs.get("scale"), gqa=call.kwargs.get("enable_gqa", False),
    )  # fmt: skip


def cross_entropy(call: Call) -> Result:
    """Cross-entropy with targets as class indices. Classes come last here, whatever the rank."""
    logits, targets = call.args[:2]
    if call.arg(2, "weight") is not None or logits.rank != targets.rank + 1:
        return other(call)
    if logits.rank > 2:
        order = (0, *range(2, logits.rank), 1)
        shape = tuple(logits.shape[d] for d in order)
        logits = Node("permute", (logits,), {"order": order}, shape, logits.dtype, call.origin)
    return call.node(
        "cross_entropy", logits, targets, reduction=("none", "mean", "sum")[call.arg(3, "reduction", 1)],
        ignore=call.arg(4, "ignore_index", -100), smoothing=call.arg(5, "label_smoothing", 0.0),
    )  # fmt: skip


def embedding(call: Call) -> Result:
    """Rows of a table. A gradient that is divided by how often a row was read would need the counts of all ranks."""
    if call.arg(3, "scale_grad_by_freq", False):
        return other(call)
    padding = call.arg(2, "padding_idx", -1)
    return call.node("embedding", *call.args[:2], **({"padding": padding} if padding >= 0 else {}))


def layer_norm(call: Call) -> Node:
    """Layer normalisation over the last `dims` dimensions."""
    x, shape = call.args[:2]
    return call.node(
        "layer_norm", x, call.arg(2, "weight"), call.arg(3, "bias"), dims=len(shape), eps=call.arg(4, "eps", 1e-5)
    )


def rms_norm(call: Call) -> Node:
    """Root-mean-square normalisation over the last `dims` dimensions."""
    x, shape = call.args[:2]
    return call.node("rms_norm", x, call.arg(2, "weight"), dims=len(shape), eps=call.arg(3, "eps"))


def along(op: str) -> Handler:
    """An op along one dimension, the result of the same shape."""

    def handler(call: Call) -> Node:
        x = call.args[0]
        if isinstance(call.arg(2, "dtype"), str) and op in ("softmax", "log_softmax"):
            x = cast(Call("softmax", (x,), {}, x.shape, call.dtype, call.origin))
        return call.node(op, x, dim=call.dim(1, "dim", -1))

    return handler


def summed_as(x: Node, call: Call) -> Node:
    """The operand in the dtype in which a call asks for its sum."""
    if not isinstance(call.kwargs.get("dtype"), str) or call.dtype == x.dtype:
        return x
    return cast(Call("sum", (x,), {}, x.shape, call.dtype, call.origin))


def reduction(op: str) -> Handler:
    """A reduction over dims (all when none are given)."""

    def handler(call: Call) -> Node:
        x = call.args[0]
        dims = call.arg(1, "dim")
        x = summed_as(x, call) if op in ("sum", "mean") else x
        listed = range(x.rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        dims = tuple(sorted(d % x.rank for d in listed))
        return call.node(op, x, dims=dims, keep=bool(call.arg(2, "keepdim", False)))

    return handler


def variance(call: Call) -> Node:
    """Variance over dims."""
    x = call.args[0]
    over_all = call.target.endswith(".default")  # has no dims: its second argument is `unbiased`
    dims = None if over_all else call.arg(1, "dim")
    unbiased = call.arg(1 if over_all else 2, "unbiased", True)
    correction = call.kwargs.get("correction", 1) if "correction" in call.target else int(bool(unbiased))
    keep = bool(call.kwargs.get("keepdim", call.arg(3, "keepdim", False)))
    listed = tuple(sorted(d % x.rank for d in (dims or range(x.rank))))
    return call.node("var", x, dims=listed, keep=keep, correction=correction)


def cumsum(call: Call) -> Node:
    """Running sums."""
    return call.node("cumsum", summed_as(call.args[0], call), dim=call.dim(1, "dim"))
