"""Operations that choose, order, count or place elements by number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphpar.check.contraction import check_whole, contract, statistic
from graphpar.check.dims import Wrong, cut_by_any, whole
from graphpar.check.rules import rule, tensor
from graphpar.check.value import Value, elementwise, meet, together


def _numbered(values: Value) -> tuple[Value, Value]:
    """Values, and their numbers, which have no gradient."""
    return values, replace(values, grad=False)


@rule(".topk", "torch.topk")
def topk(x: Value, k: int, dim: int = -1, **_: Any) -> tuple[Value, Value]:
    """The chosen of a dimension, and their numbers."""
    at = x.at(dim)
    check_whole(x, at, "a choice")
    return _numbered(meet([x], (*x.dims[:at], whole(k), *x.dims[at + 1 :]), "other"))


@rule(".sort", "torch.sort")
def sort(x: Value, dim: int = -1, **_: Any) -> tuple[Value, Value]:
    """All of a dimension in order, and where it stood."""
    check_whole(x, x.at(dim), "an order")
    return _numbered(elementwise([x], "other"))


@rule(".argsort", "torch.argsort")
def argsort(x: Value, dim: int = -1, **_: Any) -> Value:
    """Where what comes in order stood."""
    return sort(x, dim)[1]


@rule(".max", ".min")
def extreme(x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The largest or smallest along a dimension, and where it stands."""
    return _numbered(statistic(x, dim, keepdim))


@rule(".gather", "torch.gather")
def gather(x: Value, dim: int, index: Value) -> Value:
    """Elements of a dimension by number."""
    at = x.at(dim)
    check_whole(x, at, "any element")
    for i, (own, other) in enumerate(zip(x.dims, index.dims, strict=True)):
        if i != at:
            together([own, other], [x, index])
    return meet([x, index], index.dims, "other")


@rule(".scatter", "torch.scatter")
def scatter(x: Value, dim: int, index: Value, source: object) -> Value:
    """x with elements, or one number, put where the index says."""
    at = x.at(dim)
    given = [v for v in (index, source) if isinstance(v, Value)]
    for value in (x, *given):
        check_whole(value, at, "any element")
        for i in range(len(x.dims)):
            if i != at:
                together([x.dims[i], value.dims[i]], [x, value])
    return meet([x, *given], x.dims, "other")


@rule(".index_add", "torch.index_add")
def index_add(x: Value, dim: int, index: Value, source: Value) -> Value:
    """x with slices added where the index says."""
    at = x.at(dim)
    return scatter(x, dim, index.shaped((*x.dims[:at], *index.dims, *x.dims[at + 1 :])), source)


@rule("F.one_hot")
def one_hot(ids: Value, classes: int) -> Value:
    """A one among zeros."""
    return ids.shaped((*ids.dims, whole(classes)))


@rule("torch.histc")
def histc(x: Value, bins: int, **_: Any) -> Value:
    """Counts: where a dimension is cut, they are still to be summed."""
    return replace(meet([tensor(x)], (whole(bins),), "other", cut_by_any(x.dims)), grad=False)


@rule("grouped_matmul")
def grouped_matmul(x: Value, w: Value, offsets: Value) -> Value:
    """x [rows, k], w [groups, k, n] -> [rows, n], for all rows and all groups."""
    for value, dim in ((x, 0), (w, 0), (offsets, 0)):
        check_whole(value, dim, "every group")
    if offsets.partial:
        raise Wrong(f"{offsets} is still to be summed, so the groups are not known")
    return contract(["rk", "ekn"], "rn", [x, w])
