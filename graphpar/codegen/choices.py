"""Expressions that choose, order, count or place elements by number."""

from __future__ import annotations

from collections.abc import Mapping

from graphpar.codegen.expression import ATOM, TIMES, Scope, Text, Writer, arg, behind, number
from graphpar.codegen.fixed import fixed
from graphpar.ir.graph import Node

RESULTS = frozenset({"topk", "sort", "max", "min"})  # ops that make values and their numbers


def both(node: Node, scope: Scope) -> str:
    """The call that makes values and their numbers."""
    a = node.attrs
    dim = behind(a["dims"][0] if "dims" in a else a["dim"], node.operands[0].rank)
    options = {
        "topk": [f"{a.get('k')}", f"dim={dim}"],
        "sort": [f"dim={dim}"],
        "max": [f"{dim}"],
        "min": [f"{dim}"],
    }[node.op]
    for word, value, usual in (("largest", True, True), ("sorted", True, True), ("descending", False, False)):
        value = a.get(word, value)
        options += [f"{word}={value}"] if value != usual else []
    options += ["stable=True"] if a.get("stable") else []
    options += ["keepdim=True"] if a.get("keep") else []
    return f"{arg(node, 0, scope).inside(ATOM)}.{node.op}({', '.join(options)})"


def one(node: Node, scope: Scope) -> Text:
    """The values or their numbers, written on their own."""
    return Text(f"{both(node, scope)}[{node.attrs['part']}]")


def gather(node: Node, scope: Scope) -> Text:
    x, index = (arg(node, i, scope) for i in range(2))
    return Text(f"{x.inside(ATOM)}.gather({behind(node.attrs['dim'], node.rank)}, {index.text})")


def placed(node: Node, scope: Scope) -> Text:
    """What is put somewhere has its dtype: zeros have that of the model, whatever it is."""
    x, index, source = (arg(node, i, scope) for i in range(3))
    into, given = node.args[0], node.args[2]
    text, put = x.inside(ATOM), source.text
    if isinstance(into, Node) and isinstance(given, Node) and fixed(into) != fixed(given):
        if fixed(into):
            text = f"{text}.type_as({source.text})"
        else:
            put = f"{source.inside(ATOM)}.type_as({x.text})"
    return Text(f"{text}.{node.op}({behind(node.attrs['dim'], node.rank)}, {index.text}, {put})")


def index(node: Node, scope: Scope) -> Text:
    """`x[:, ids]`."""
    items = [":" if a is None else arg(node, i, scope).text for i, a in enumerate(node.args[1:], start=1)]
    return Text(f"{arg(node, 0, scope).inside(ATOM)}[{', '.join(items)}]")


def grouped_matmul(node: Node, scope: Scope) -> Text:
    return Text(f"{scope.need('grouped_matmul')}({', '.join(arg(node, i, scope).text for i in range(3))})")


def histc(node: Node, scope: Scope) -> Text:
    bins, low, high = (number(node.attrs[k]) for k in ("bins", "low", "high"))
    return Text(f"torch.histc({arg(node, 0, scope).text}, bins={bins}, min={low}, max={high})")


def cumsum(node: Node, scope: Scope) -> Text:
    """Sums of whole numbers are int64 unless another dtype is asked for."""
    (x,) = node.operands
    natural = x.dtype if x.dtype.startswith(("float", "bfloat")) else "int64"
    dtype = "" if node.dtype == natural else f", dtype=torch.{node.dtype}"
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.cumsum({behind(node.attrs['dim'], node.rank)}{dtype})")


def remainder(node: Node, scope: Scope) -> Text:
    return Text(f"{arg(node, 0, scope).inside(TIMES)} % {arg(node, 1, scope).inside(TIMES, strict=True)}", TIMES)


CHOICES: Mapping[str, Writer] = {
    **dict.fromkeys(RESULTS, one),
    "gather": gather,
    "scatter": placed,
    "index_add": placed,
    "index": index,
    "one_hot": lambda n, s: Text(f"F.one_hot({arg(n, 0, s).text}, {n.attrs['classes']})"),
    "histc": histc,
    "cumsum": cumsum,
    "remainder": remainder,
    "grouped_matmul": grouped_matmul,
}
