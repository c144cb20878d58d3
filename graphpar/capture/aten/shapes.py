"""ATen calls that move elements, take parts of a tensor, or make one."""

from __future__ import annotations

from typing import Any

from graphpar.capture.aten.call import Call, Handler, Result, other
from graphpar.ir.graph import Node, Size


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


def diff(call: Call) -> Result:
    """Differences of neighbours."""
    x = call.args[0]
    prepend = call.arg(3, "prepend")
    if call.arg(1, "n", 1) != 1 or call.arg(4, "append") is not None:
        return other(call)
    return call.node("diff", *((x,) if prepend is None else (x, prepend)), dim=call.dim(2, "dim", -1))


def index(call: Call) -> Node:
    """Advanced indexing; a missing index takes the whole dimension. Rows of a table are looked up in it.

    `x[torch.arange(rows), at]` takes one element of each row, of those along its second dimension.
    """
    x, indices = call.args[0], call.args[1]
    given = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    if len(given) == 1:
        dim, where = given[0]
        if (run := _run(where)) is not None:
            start, stop = (n + x.shape[dim] if n < 0 else n for n in run)
            return call.node("slice", x, dim=dim, start=start, stop=stop + 1, step=1)
        if dim == 0 and x.rank == 2 and where.dtype.startswith("int"):
            return call.node("embedding", x, where)
    if [dim for dim, _ in given] == [0, 1] and _every_row(x, *(i for _, i in given)):
        return call.node("of_rows", x, given[1][1])
    return call.node("index", x, *indices)


def _every_row(x: Node, rows: Node, at: Node) -> bool:
    every = rows.op == "arange" and (rows.attrs["start"], rows.attrs["step"]) == (0, 1)
    return every and rows.shape == at.shape == x.shape[:1]


def _run(where: Node) -> tuple[int, int] | None:
    """The first and last of numbers that a list in the source gives, if each is one more than that before."""
    numbers = where.attrs.get("value") if where.op == "constant" else None
    if not isinstance(numbers, list) or not numbers or any(type(n) is not int for n in numbers):
        return None
    return (numbers[0], numbers[-1]) if numbers == list(range(numbers[0], numbers[0] + len(numbers))) else None
