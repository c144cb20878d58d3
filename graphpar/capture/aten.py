"""ATen to graphpar: one spelling per idea. The only table that knows ATen's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import sympy

from graphpar.ir.graph import Arg, Node, Origin, Size


@dataclass(frozen=True, slots=True)
class Call:
    """One ATen call: its arguments with tensors already translated, and what the result looks like."""

    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    shape: tuple[Size, ...]
    dtype: str
    origin: Origin
    parts: tuple[tuple[tuple[Size, ...], str], ...] = ()

    def arg(self, index: int, name: str, default: Any = None) -> Any:
        """An argument given by position or by name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    def node(self, op: str, *args: Arg, **attrs: Any) -> Node:
        """The result as a node."""
        return Node(op, args, attrs, self.shape, self.dtype, self.origin)

    def dim(self, index: int, name: str, default: int = 0, rank: int | None = None) -> int:
        """A dimension argument, counted from the front."""
        value = self.arg(index, name, default)
        return value % (len(self.shape) if rank is None else rank)


Result: TypeAlias = "Node | tuple[Node, ...]"
Handler: TypeAlias = "Callable[[Call], Result]"


def same(call: Call) -> Node:
    """The call changes nothing that a graph keeps: layout, storage, device."""
    return call.args[0]


def pointwise(op: str) -> Handler:
    """An op that works element by element, operands broadcast."""
    return lambda call: call.node(op, *call.args)


def scaled(op: str) -> Handler:
    """`a + alpha b` and `a - alpha b`."""

    def handler(call: Call) -> Node:
        a, b = call.args[:2]
        alpha = call.arg(2, "alpha", 1)
        if alpha != 1:
            b = Node("mul", (b, alpha), {}, b.shape, b.dtype, call.origin) if isinstance(b, Node) else b * alpha
        if not isinstance(b, Node) and b == 0:
            return a
        return call.node(op, a, b)

    return handler


def divide(call: Call) -> Node:
    """Division, with its rounding mode."""
    mode = call.arg(2, "rounding_mode")
    return call.node("div", *call.args[:2], **({"rounding": mode} if mode else {}))


def cast(call: Call) -> Node:
    """A change of dtype. A cast of float32 to float32 says "at least float32" and is kept as that."""
    (x, *_) = call.args
    if call.dtype != x.dtype:
        return call.node("cast", x, dtype=call.dtype)
    explicit = "to.dtype" in call.target or "_to_copy" in call.target or "softmax" in call.target
    if explicit and "layout" not in call.target and x.dtype == "float32" and not is_wide(x):
        return call.node("upcast", x)
    return x


_KEEPS_WIDTH = frozenset(
    {"add", "sub", "mul", "div", "pow", "neg", "rsqrt", "sqrt", "mean", "sum", "reshape", "softmax", "piece"}
)


def is_wide(x: Node) -> bool:
    """Whether the value is at least float32 whatever the compute dtype, since an upcast precedes it."""
    stack, seen = [x], 0
    while stack and seen < 64:
        node, seen = stack.pop(), seen + 1
        if node.op == "upcast":
            return True
        if node.op in _KEEPS_WIDTH:
            stack.extend(node.operands)
    return False


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


def reduction(op: str) -> Handler:
    """A reduction over dims (all when none are given)."""

    def handler(call: Call) -> Node:
        x = call.args[0]
        dims = call.arg(1, "dim")
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


def reshape(call: Call) -> Node:
    """Every way to say a row-major change of shape; the sizes are the result's own."""
    (x, *_) = call.args
    return x if x.shape == call.shape else call.node("reshape", x)


def expand(call: Call) -> Node:
    """Copies along dimensions of size one, and new leading ones."""
    (x, *_) = call.args
    return x if x.shape == call.shape else call.node("expand", x)


def unsqueeze(call: Call) -> Node:
    """A new dimension of size one."""
    return call.node("unsqueeze", call.args[0], dim=call.dim(1, "dim"))


def squeeze(call: Call) -> Node:
    """Dimensions of size one removed."""
    return reshape(call)


def transpose(call: Call) -> Node:
    """Two dimensions exchanged."""
    order = list(range(len(call.shape)))
    a: int = call.arg(1, "dim0", -1)
    b: int = call.arg(2, "dim1", -2)
    order[a], order[b] = order[b], order[a]
    return call.node("permute", call.args[0], order=tuple(order))


def permute(call: Call) -> Node:
    """Dimensions in another order."""
    return call.node("permute", call.args[0], order=tuple(d % len(call.shape) for d in call.args[1]))


def slice_(call: Call) -> Node:
    """Part of a dimension; the whole range is no op."""
    x = call.args[0]
    dim = call.dim(1, "dim", 0)
    size = x.shape[dim]
    start, stop, step = (call.arg(i, n, d) for i, n, d in ((2, "start", 0), (3, "end", None), (4, "step", 1)))
    start, stop = _bound(start or 0, size), size if stop is None else _bound(stop, size)
    if step == 1 and start == 0 and call.shape[dim] == size:
        return x
    if step == 1:
        stop = start + call.shape[dim]
    return call.node("slice", x, dim=dim, start=start, stop=stop, step=step)


def _bound(value: Any, size: Size) -> Any:
    if isinstance(value, int) and value > 1 << 60:
        return size
    return size + value if isinstance(value, int) and value < 0 else value


def select(call: Call) -> Node:
    """One index of a dimension, the dimension removed."""
    x = call.args[0]
    dim = call.args[1] % x.rank
    index = call.args[2]
    return call.node(
        "select", x, dim=dim, index=index + x.shape[dim] if isinstance(index, int) and index < 0 else index
    )


def pieces(call: Call) -> tuple[Node, ...]:
    """A dimension cut into parts: equal pieces, or segments of other sizes."""
    x = call.args[0]
    dim = call.arg(2, "dim", 0) % x.rank
    sizes = tuple(shape[dim] for shape, _ in call.parts)
    equal = len(set(sizes)) == 1
    attrs = {"dim": dim, "count": len(sizes)} if equal else {"dim": dim, "sizes": sizes}
    op = "piece" if equal else "segment"
    return tuple(
        Node(op, (x,), attrs | {"index": i}, shape, dtype, call.origin) for i, (shape, dtype) in enumerate(call.parts)
    )


def unbind(call: Call) -> tuple[Node, ...]:
    """Every index of a dimension on its own."""
    x = call.args[0]
    dim = call.arg(1, "dim", 0) % x.rank
    return tuple(
        Node("select", (x,), {"dim": dim, "index": i}, shape, dtype, call.origin)
        for i, (shape, dtype) in enumerate(call.parts)
    )


def joined(op: str) -> Handler:
    """Tensors side by side along one dimension, or stacked along a new one."""
    return lambda call: call.node(op, *call.args[0], dim=call.dim(1, "dim", 0))


def repeat_interleave(call: Call) -> Result:
    """Each index of a dimension repeated in place."""
    x, repeats = call.args[:2]
    dim = call.arg(2, "dim")
    return call.node("repeat_interleave", x, repeats=repeats, dim=dim % x.rank) if dim is not None else other(call)


def pad(call: Call) -> Result:
    """A constant before and after each dimension, last dimension first."""
    x, widths = call.args[:2]
    if "pad.default" in call.target and call.arg(2, "mode", "constant") != "constant":
        return other(call)
    value = call.arg(2 if "constant_pad" in call.target else 3, "value", 0)
    return call.node("pad", x, widths=tuple(widths), value=value or 0)


def arange(call: Call) -> Node:
    """Consecutive numbers."""
    given: list[Any] = list(call.args[:3])
    start, stop, step = (0, *given, 1) if len(given) == 1 else (*given, 1) if len(given) == 2 else given
    return call.node("arange", start=start, stop=stop, step=step)


def full(value: float | None = None, at: int = 1) -> Handler:
    """One value everywhere."""
    return lambda call: call.node("full", value=call.args[at] if value is None else value)


def triangle(op: str) -> Handler:
    """A triangle of the last two dims."""
    return lambda call: call.node(op, call.args[0], diagonal=call.arg(1, "diagonal", 0))


def masked_fill(call: Call) -> Node:
    """`value` where the mask holds."""
    x, mask, value = call.args
    return call.node("where", mask, value, x)


def clamp(call: Call) -> Node:
    """Values kept within bounds."""
    return call.node("clamp", call.args[0], low=call.arg(1, "min"), high=call.arg(2, "max"))


def dropout(call: Call) -> Node:
    """Dropout; `p` of zero is no op."""
    x, p = call.args[:2]
    return call.node("dropout", x, p=p) if p and call.arg(2, "train", True) else x


def matmul(call: Call) -> Node:
    """A product over the last dim of the first and the second-last of the second operand."""
    return call.node("matmul", *call.args[:2])


def einsum(call: Call) -> Node:
    """An einsum."""
    return call.node("einsum", *call.args[1], equation=call.args[0].replace(" ", ""))


def cumsum(call: Call) -> Node:
    """Running sums."""
    return call.node("cumsum", call.args[0], dim=call.dim(1, "dim"))


def diff(call: Call) -> Result:
    """Differences of neighbours."""
    x = call.args[0]
    prepend = call.arg(3, "prepend")
    if call.arg(1, "n", 1) != 1 or call.arg(4, "append") is not None:
        return other(call)
    return call.node("diff", *((x,) if prepend is None else (x, prepend)), dim=call.dim(2, "dim", -1))


def index(call: Call) -> Node:
    """Advanced indexing; a missing index takes the whole dimension. Rows of a table are looked up in it."""
    x, indices = call.args[0], call.args[1]
    given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    if len(given) == 1:
        dim, where = given[0]
        if (run := _run(where)) is not None:
            start, stop = (n + x.shape[dim] if n < 0 else n for n in run)
            return call.node("slice", x, dim=dim, start=start, stop=stop + 1, step=1)
        if dim == 0 and x.rank == 2 and where.dtype.startswith("int"):
            return call.node("embedding", x, where)
    return call.node("index", x, *indices)


def _run(where: Node) -> tuple[int, int] | None:
    """The first and last of numbers that a list in the source gives, if each is one more than that before."""
    numbers = where.attrs.get("value") if where.op == "constant" else None
    if not isinstance(numbers, list) or not numbers or any(type(n) is not int for n in numbers):
        return None
    return (numbers[0], numbers[-1]) if numbers == list(range(numbers[0], numbers[0] + len(numbers))) else None


def gelu(call: Call) -> Node:
    """GELU, exact or by tanh."""
    return call.node("gelu", call.args[0], approximate=call.arg(1, "approximate", "none"))


def softplus(call: Call) -> Node:
    """Softplus."""
    return call.node("softplus", call.args[0], beta=call.arg(1, "beta", 1), threshold=call.arg(2, "threshold", 20))


def subtracted(call: Call) -> Node:
    """`b - alpha a`."""
    a, b, alpha = *call.args[:2], call.arg(2, "alpha", 1)
    taken = a if alpha == 1 else Node("mul", (a, alpha), {}, a.shape, a.dtype, call.origin)
    return call.node("sub", b, taken)


def logical(op: str) -> Handler:
    """Truth of truth values; of numbers it is not that of their bits, and has no word here."""
    return lambda call: call.node(op, *call.args) if _are(call, "bool") else other(call)


def bitwise_not(call: Call) -> Result:
    """The other truth value; of numbers it is another number, which has no word here."""
    return call.node("logical_not", *call.args) if _are(call, "bool") else other(call)


def _are(call: Call, dtype: str) -> bool:
    return all(x.dtype == dtype for x in call.args if isinstance(x, Node))


def other(call: Call) -> Result:
    """An op that graphpar has no word for: kept under its own name, its tensors numbered in the call."""
    flat: list[Node] = []
    attrs = {"call": _slots(call.args, flat), "words": {k: _slots(v, flat) for k, v in call.kwargs.items()}}
    if call.parts:
        return tuple(
            Node(call.target, tuple(flat), attrs | {"part": i}, shape, dtype, call.origin)
            for i, (shape, dtype) in enumerate(call.parts)
        )
    return Node(call.target, tuple(flat), attrs, call.shape, call.dtype, call.origin)


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a tensor in a call: the number of the operand."""

    index: int


def _slots(value: Any, flat: list[Node]) -> Any:
    if isinstance(value, Node):
        flat.append(value)
        return Slot(len(flat) - 1)
    return tuple(_slots(v, flat) for v in value) if is_sequence(value) else value


_UNARY = (
    "neg exp log log1p expm1 tanh sigmoid relu silu rsqrt sqrt reciprocal cos sin abs erf square isnan "
    "floor ceil round sign detach"
).split()
_COMPARE = "eq ne lt le gt ge".split()

TABLE: dict[str, Handler] = {
    **{f"aten.{op}.default": pointwise(op) for op in _UNARY},
    **{f"aten.{op}.{kind}": pointwise(op) for op in _COMPARE for kind in ("Tensor", "Scalar")},
    **{f"aten.{op}.Tensor": scaled(op) for op in ("add", "sub")},
    **{f"aten.{op}.Scalar": scaled(op) for op in ("add", "sub")},
    **{f"aten.{op}.{kind}": pointwise("and") for op in ("__and__", "bitwise_and") for kind in ("Tensor", "Scalar")},
    **{f"aten.{op}.{kind}": pointwise("or") for op in ("__or__", "bitwise_or") for kind in ("Tensor", "Scalar")},
    **{f"aten.mul.{kind}": pointwise("mul") for kind in ("Tensor", "Scalar")},
    **{f"aten.div.{kind}": divide for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"aten.pow.{kind}": pointwise("pow") for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    **{f"aten.where.{kind}": pointwise("where") for kind in ("self", "ScalarOther", "ScalarSelf", "Scalar")},
    **{f"aten.masked_fill.{kind}": masked_fill for kind in ("Scalar", "Tensor")},
    **{f"aten.{op}.default": same for op in ("contiguous", "alias", "clone", "lift_fresh", "lift_fresh_copy")},
    **{f"aten.to.{kind}": cast for kind in ("dtype", "dtype_layout", "device", "other")},
    **{f"aten.{op}.default": reshape for op in ("view", "reshape", "_unsafe_view", "squeeze", "view_as", "reshape_as")},
    **{
        f"aten.{op}": reshape
        for op in ("flatten.using_ints", "unflatten.int", "squeeze.dim", "squeeze.dims", "ravel.default")
    },
    **{f"aten.{op}": pieces for op in ("chunk.default", "split.Tensor", "split.sizes", "split_with_sizes.default")},
    **{
        f"aten.{op}": reduction(op.split(".")[0])
        for op in ("sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "sum.default", "mean.default")
    },
    **{f"aten.var.{kind}": variance for kind in ("dim", "correction", "default")},
    "aten.logical_not.default": logical("logical_not"),
    "aten.logical_and.default": logical("and"),
    "aten.logical_or.default": logical("or"),
    "aten.bitwise_not.default": bitwise_not,
    "aten.maximum.default": pointwise("maximum"),
    "aten.minimum.default": pointwise("minimum"),
    "aten.max.other": pointwise("maximum"),
    "aten.min.other": pointwise("minimum"),
    "aten.rsub.Scalar": subtracted,
    "aten.type_as.default": cast,
    "aten._to_copy.default": cast,
    "aten.linear.default": linear,
    "aten.addmm.default": addmm,
    "aten.baddbmm.default": addmm,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.matmul.default": matmul,
    "aten.einsum.default": einsum,
    "aten.scaled_dot_product_attention.default": sdpa,
    "aten.cross_entropy_loss.default": cross_entropy,
    "aten.embedding.default": embedding,
    "aten.layer_norm.default": layer_norm,
    "aten.rms_norm.default": rms_norm,
    "aten.softmax.int": along("softmax"),
    "aten.log_softmax.int": along("log_softmax"),
    "aten.gelu.default": gelu,
    "aten.softplus.default": softplus,
    "aten.expand.default": expand,
    "aten.expand_as.default": expand,
    "aten.unsqueeze.default": unsqueeze,
    "aten.transpose.int": transpose,
    "aten.t.default": transpose,
    "aten.mT.default": transpose,
    "aten.numpy_T.default": transpose,
    "aten.permute.default": permute,
    "aten.slice.Tensor": slice_,
    "aten.select.int": select,
    "aten.unbind.int": unbind,
    "aten.cat.default": joined("cat"),
    "aten.stack.default": joined("stack"),
    "aten.repeat_interleave.self_int": repeat_interleave,
    "aten.pad.default": pad,
    "aten.constant_pad_nd.default": pad,
    "aten.arange.default": arange,
    "aten.arange.start": arange,
    "aten.arange.start_step": arange,
    "aten.full.default": full(),
    "aten.full_like.default": full(),
    "aten.new_full.default": full(at=2),
    "aten.scalar_tensor.default": full(at=0),
    **{f"aten.{op}.default": full(0) for op in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{op}.default": full(1) for op in ("ones", "ones_like", "new_ones")},
    "aten.tril.default": triangle("tril"),
    "aten.triu.default": triangle("triu"),
    "aten.clamp.default": clamp,
    "aten.clamp_min.default": clamp,
    "aten.dropout.default": dropout,
    "aten.cumsum.default": cumsum,
    "aten.diff.default": diff,
    "aten.index.Tensor": index,
}


def simplify_size(value: Any) -> Size:
    """A size as an int where it is one."""
    expression = sympy.sympify(value)
    return int(expression) if expression.is_Integer else expression


def is_sequence(value: Any) -> bool:
    """Whether an argument is a list of arguments."""
    return isinstance(value, Sequence) and not isinstance(value, str)
