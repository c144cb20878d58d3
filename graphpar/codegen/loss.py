"""The loss of a training program: a sum over labels, divided once by a count that the caller knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphpar.codegen.forward import forward
from graphpar.codegen.layout import columns
from graphpar.codegen.program import Line, Program
from graphpar.codegen.tree import Body, Statement
from graphpar.errors import Diagnostic, GraphparError
from graphpar.ir.graph import Graph, Node, reachable, rebuild
from graphpar.ir.states import I

COUNT = "count"


@dataclass(frozen=True)
class Labels:
    """The labels that a mean cross-entropy counts: the value it compares with, and the one it ignores."""

    value: Node
    ignore: int


def divide_by_count(graph: Graph) -> Graph:
    """Give the mean cross-entropy the number of labels as an operand of its own: an input of the program.

    Raises GraphparError if there are several, over labels of their own: one count cannot serve them.
    """
    means = [n for n in graph.nodes if n.op == "cross_entropy" and n.attrs["reduction"] == "mean"]
    if len({_uncut(n.operands[1]) for n in means}) > 1:
        raise GraphparError(_several(means))
    count = Node("input", (), {"name": COUNT}, (), "int64", axes=(), operand_axes=())

    def rule(node: Node) -> Node | None:
        if node.op != "cross_entropy" or node.attrs["reduction"] != "mean":
            return None
        axes = (*(node.operand_axes or (None, None)), ())
        known = replace(count, state=dict.fromkeys(node.state or {}, I))
        return replace(node, args=(*node.args, known), operand_axes=axes)

    return _one_count(rebuild(graph, rule))


def _uncut(value: Node) -> Node:
    while "forward" in value.attrs:
        value = value.operands[0]
    return value


def _several(means: Sequence[Node]) -> Diagnostic:
    places = tuple(f"cross_entropy with reduction='mean' at {n.origin}" for n in means)
    return Diagnostic(
        "several-means",
        None,
        "the loss is made of several means over labels of their own",
        why=(*places, "each is to be divided by its own number of labels over all ranks, and the program is given one"),
        fix="compute one cross_entropy over all labels, or sum (reduction='sum') and divide in the model by a constant",
        kind="model",
    )


# Ops that leave a sum over labels one, with as many tensors: one that is multiplied is multiplied by a constant.
_ADDS_UP = {"add": 2, "sub": 2, "mul": 1, "upcast": 1, "all_reduce": 1, "reshape": 1}


def plain_mean(graph: Graph) -> bool:
    """Whether the loss is a sum over labels, times constants: then it adds up over the parts of a batch."""
    if any(n.op == "kept" and not n.attrs["groups"] for n in graph.nodes):
        return False  # all tokens of a batch compete
    stack: list[Node] = list(graph.outputs)
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op == "cross_entropy":
            if node.attrs["reduction"] == "none":
                return False
        elif len(node.operands) == _ADDS_UP.get(node.op):
            stack.extend(node.operands)
        else:
            return False
    return True


def _one_count(graph: Graph) -> Graph:
    kept: dict[str, Node] = {}
    return rebuild(graph, lambda n: kept.setdefault(COUNT, n) if n.op == "input" and n.attrs["name"] == COUNT else None)


def labels(graph: Graph) -> Labels | None:
    """The labels of the graph's mean cross-entropy, before they are cut over axes that do not cut the data."""
    for node in graph.nodes:
        if node.op == "cross_entropy" and node.attrs["reduction"] == "mean":
            return Labels(_uncut(node.operands[1]), node.attrs["ignore"])
    return None


def of_labels(graph: Graph) -> list[Node]:
    """The second input, and what is made of it alone before the loss: labels, and what marks them."""
    found: dict[Node, None] = dict.fromkeys(_given(graph)[1:2])
    for node in graph.nodes:
        if found.keys() & set(node.operands) and not node.dtype.startswith(("float", "bfloat")):
            found[node] = None
    return list(found)


def kind_of_labels(graph: Graph) -> str:
    """What the labels are of: "row", or tokens that the model compares with the "same" position or shifts by itself.

    "same": labels[i] is the token ids[i], and the model shifts them; "next": labels[i] is the token after ids[i].
    """
    if all(len(n.shape) == 1 for n in _given(graph)[1:]):
        return "row"
    return "same" if any(n.op in ("pad", "slice") for n in of_labels(graph)) else "next"


def ignored(graph: Graph) -> int | None:
    """The label that the loss leaves out; None unless all that reads the labels are cross-entropies that do."""
    labels = set(of_labels(graph))
    readers = [n for n in graph.nodes if n not in labels and labels & set(n.operands)]
    left_out = {n.attrs["ignore"] if n.op == "cross_entropy" else None for n in readers}
    return left_out.pop() if len(left_out) == 1 else None


def _given(graph: Graph) -> list[Node]:
    return [n for n in graph.inputs if n.attrs["name"] != COUNT]


def count_method(graph: Graph, program: Program, found: Labels) -> list[str]:
    """The method that counts the labels of a batch on this rank."""
    inside = reachable([found.value])
    users: Mapping[Node, list[Node]] = {n: [u for u in program.users[n] if u in inside] for n in inside}
    items = [Statement(n) for n in graph.nodes if n in inside and n.op != "input"]
    body = Body("", list(items), _given(graph), [found.value])
    made = forward(body, replace(program, users=users), lambda _: "")
    last = made.lines[-1]
    value = last.code.removeprefix("return ")
    counted = Line(f"return ({value} != {found.ignore}).sum()")
    head = f"def {COUNT}(self, {', '.join(f'{n}: Tensor' for n in made.arguments)}) -> Tensor:"
    doc = Line('"""How many labels of this rank the loss counts."""')
    lines = [Line(head, indent=1), doc, *made.lines[:-1], counted]
    return columns(lines)
