"""What keeps a model from having a mixture of experts: the first value that breaks the pattern."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphpar.errors import Diagnostic, Note, Span
from graphpar.ir.graph import Graph, Node
from graphpar.language.schema import Spec
from graphpar.rewrite.rowwise import Rows, follow, rows_of

PRODUCTS = ("indexed_linear", "grouped_matmul")  # of rows with the matrices of their experts, left as they are


def almost(graph: Graph, spec: Spec) -> list[Diagnostic]:
    """Where experts are asked for, one diagnostic for each value that mixes rows before they are back with tokens."""
    if spec.moe is None:
        return []
    found: dict[tuple[str, int], Diagnostic] = {}
    for product, breaking in _breaks(graph):
        found.setdefault((breaking.origin.file, breaking.origin.line), _mixes(product, breaking))
    return list(found.values())


def _breaks(graph: Graph) -> Iterator[tuple[Node, Node]]:
    """Products with experts' matrices, each with the first op behind it that does not work within rows."""
    for product in (n for n in graph.nodes if n.op in PRODUCTS):
        values = {product: Rows(product.rank - 1, product)}
        count = prod(product.shape[:-1])
        for node in graph.nodes:
            if not values.keys() & set(node.operands) or node.op in (*PRODUCTS, "sum"):
                continue  # a sum over the choices of a token is how rows come back
            beside = {a: Rows(lead, a) for a in node.operands if (lead := rows_of(a.shape, count))}
            rows = follow(node, beside | values, count)
            if rows is None:
                yield product, node
                break
            values[node] = rows


def _mixes(product: Node, breaking: Node) -> Diagnostic:
    return Diagnostic(
        "almost-experts",
        _place(breaking),
        f"`{breaking.op}` keeps {breaking.origin.module or 'the model'} from being a mixture of experts",
        why=(
            "between the choice of experts and the sum over the choices of a token, each row is computed on by itself",
            f"this one takes rows together, or puts them where their tokens are not: {list(breaking.shape)}",
        ),
        notes=(Note("rows meet the matrices of their experts here", _place(product)),),
        fix="add up the rows of each token first: (y.view(tokens, k, -1) * weight.unsqueeze(-1)).sum(1)",
        kind="model",
    )


def _place(node: Node) -> Span | None:
    return Span(node.origin.file, node.origin.line, 1, 1) if node.origin.file else None
