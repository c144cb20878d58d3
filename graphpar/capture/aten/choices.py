"""ATen calls that choose, order, count or place elements by number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphpar.capture.aten.call import Call, Handler, Result, other
from graphpar.ir.graph import Node


def _both(call: Call, op: str, attrs: Mapping[str, Any]) -> tuple[Node, ...]:
    """The values and their numbers, each a node."""
    return tuple(
        Node(op, (call.args[0],), {**attrs, "part": i}, shape, dtype, call.origin)
        for i, (shape, dtype) in enumerate(call.parts)
    )


def topk(call: Call) -> Result:
    """The k largest or smallest along a dimension."""
    x, k = call.args[:2]
    dim = call.arg(2, "dim", -1) % x.rank
    attrs = {"k": k, "dim": dim, "largest": call.arg(3, "largest", True), "sorted": call.arg(4, "sorted", True)}
    return _both(call, "topk", attrs) if isinstance(k, int) else other(call)


def sort(call: Call) -> Result:
    """All of a dimension in order."""
    return _both(call, "sort", _order(call))


def argsort(call: Call) -> Result:
    """The numbers that put a dimension in order."""
    return call.node("sort", call.args[0], **_order(call), part=1)


def _order(call: Call) -> dict[str, Any]:
    """`stable` stands before the dimension where it is given at all."""
    x, *given = call.args
    named = ["stable"] if call.target.endswith(".stable") and "stable" not in call.kwargs else []
    words = dict(zip([*named, "dim", "descending"], given, strict=False)) | dict(call.kwargs)
    return {
        "dim": words.get("dim", -1) % x.rank,
        "descending": bool(words.get("descending", False)),
        "stable": bool(words.get("stable", False)),
    }


def extreme(op: str) -> Handler:
    """The largest or smallest along one dimension, and where it stands: its gradient goes to that one alone."""

    def handler(call: Call) -> Result:
        dim = call.arg(1, "dim") % call.args[0].rank
        return _both(call, op, {"dims": (dim,), "keep": bool(call.arg(2, "keepdim", False))})

    return handler


def grouped_matmul(call: Call) -> Result:
    """Consecutive rows, each group with a matrix of its own; `offsets` say where each group ends."""
    x, w, offsets = (call.arg(i, name) for i, name in enumerate(("input", "weight", "offs")))
    more = [call.arg(i, name) for i, name in ((3, "bias"), (4, "out_dtype"))]
    plain = isinstance(offsets, Node) and (x.rank, w.rank) == (2, 3) and more == [None, None]
    return call.node("grouped_matmul", x, w, offsets) if plain else other(call)


def gather(call: Call) -> Result:
    """Elements of a dimension by number."""
    x, dim, index = call.args[:3]
    return call.node("gather", x, index, dim=dim % x.rank) if _fit(x, dim, index) else other(call)


def _fit(x: Node, dim: int, *others: object) -> bool:
    """Whether tensors are as large as x but along one dimension."""
    sizes = [[s for i, s in enumerate(t.shape) if i != dim % x.rank] for t in (x, *others) if isinstance(t, Node)]
    return all(s == sizes[0] for s in sizes)


def scatter(call: Call) -> Result:
    """Elements, or one number, put where the index says."""
    x, dim, index, source = call.args[:4]
    plain = len(call.args) == 4 and not call.kwargs and _fit(x, dim, index, source)
    same = not isinstance(source, Node) or source.shape == index.shape
    return call.node("scatter", x, index, source, dim=dim % x.rank) if plain and same else other(call)


def scatter_add(call: Call) -> Result:
    """Elements added where the index says: along the one dimension there is."""
    x, dim, index, source = call.args[:4]
    same = x.rank == 1 and index.shape == source.shape
    return call.node("index_add", x, index, source, dim=dim % x.rank) if same else other(call)


def index_add(call: Call) -> Result:
    """Slices added where the index says."""
    x, dim, index, source = call.args[:4]
    plain = call.arg(4, "alpha", 1) == 1 and index.rank == 1
    return call.node("index_add", x, index, source, dim=dim % x.rank) if plain else other(call)


def index_put(call: Call) -> Result:
    """Elements of a row put, or added, where the index says."""
    x, indices, source = call.args[:3]
    index = indices[0]
    if (
        len(indices) > 1
        or x.rank != 1
        or index is None
        or not index.dtype.startswith("int")
        or index.shape != source.shape
    ):
        return other(call)
    added = call.arg(3, "accumulate", False)
    return call.node("index_add" if added else "scatter", x, index, source, dim=0)


def one_hot(call: Call) -> Result:
    """A new last dimension of truth values as numbers; the number of classes is given."""
    x, classes = call.args[0], call.arg(1, "num_classes", -1)
    return call.node("one_hot", x, classes=classes) if isinstance(classes, int) and classes > 0 else other(call)


def histc(call: Call) -> Result:
    """How many elements fall into each of equal bins between two bounds."""
    x, bins, low, high = call.args[0], call.arg(1, "bins", 100), call.arg(2, "min", 0), call.arg(3, "max", 0)
    return other(call) if low == high else call.node("histc", x, bins=bins, low=low, high=high)


CHOICES: dict[str, Handler] = {
    "aten.topk.default": topk,
    "aten.sort.default": sort,
    "aten.sort.stable": sort,
    "aten.argsort.default": argsort,
    "aten.argsort.stable": argsort,
    "aten.max.dim": extreme("max"),
    "aten.min.dim": extreme("min"),
    "aten._grouped_mm.default": grouped_matmul,
    "transformers.grouped_mm_fallback.default": grouped_matmul,
    "aten.gather.default": gather,
    "aten.scatter.src": scatter,
    "aten.scatter.value": scatter,
    "aten.scatter_add.default": scatter_add,
    "aten.index_add.default": index_add,
    "aten.index_put.default": index_put,
    "aten.one_hot.default": one_hot,
    "aten.histc.default": histc,
}
