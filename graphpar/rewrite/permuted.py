"""Rows that are sorted by expert, taken back to the order in which they were.

A model that sorts its rows, computes on them and restores their order computes the same without sorting, if each step
works within rows: a product by groups of sorted rows is a product of each row with the matrix of its own expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from graphpar.ir.graph import Graph, Node, rebuild
from graphpar.rewrite.rowwise import Rows, follow, same, with_shape

_SAME = frozenset({"cast", "upcast", "detach"})  # an order is one whatever its dtype


@dataclass
class Unsorting:
    """What is known of orders.

    `orders`: permutations, with the keys that were sorted; `back`: their inverses; `tokens`: which token each sorted
    row is of, with the number of rows of a token; `plain`: for a value of sorted rows, the keys and the same rows
    unsorted.
    """

    orders: dict[Node, Node] = field(default_factory=dict[Node, Node])
    back: dict[Node, Node] = field(default_factory=dict[Node, Node])
    tokens: dict[Node, tuple[Node, int]] = field(default_factory=dict[Node, "tuple[Node, int]"])
    plain: dict[Node, tuple[Node, Node]] = field(default_factory=dict[Node, "tuple[Node, Node]"])

    def __call__(self, node: Node) -> Node | None:
        """What takes a node's place: rows whose order is restored are those that were never sorted."""
        found = restored(node, self)
        if found is None:
            for learn in (_order, _token, _picked, _grouped, _within):
                learn(node, self)
        return found

    def sorted(self, node: Node, keys: Node, rows: Node) -> None:
        """Note that a value is `rows` in the order of `keys`."""
        self.plain[node] = (keys, rows)


def unsort(graph: Graph) -> Graph:
    """Without the orders that are taken back."""
    return rebuild(graph, Unsorting())


def picks(node: Node) -> tuple[Node, Node] | None:
    """A value and the index by which its rows, or those of a table, are picked."""
    if node.op in ("index", "embedding") and len(node.args) == 2 and "padding" not in node.attrs:
        x, index = node.operands
        return (x, index) if index.dtype.startswith("int") else None
    return None


def restored(node: Node, known: Unsorting) -> Node | None:
    """Rows in the order in which they were, where this node restores it."""
    picked = picks(node)
    if picked is not None:
        x, index = picked
        if x in known.plain and known.back.get(index) is known.plain[x][0]:
            return known.plain[x][1]
    if node.op in ("index_add", "scatter", "index_put") and len(node.operands) == 3 and node.attrs.get("dim", 0) == 0:
        return _put_back(node, known)
    return None


def _put_back(node: Node, known: Unsorting) -> Node | None:
    base, index, source = node.operands
    if source not in known.plain:
        return None
    keys, rows = known.plain[source]
    if index in known.tokens and known.tokens[index][0] is keys and node.op == "index_add":
        count = known.tokens[index][1]
        split = with_shape(rows, (node.shape[0], count, *node.shape[1:]))
        return _added(base, Node("sum", (split,), {"dims": (1,), "keep": False}, node.shape, node.dtype, node.origin))
    if known.orders.get(index) is keys:
        return _added(base, rows) if node.op == "index_add" else rows
    return None


def _added(base: Node, value: Node) -> Node:
    if base.op == "full" and base.attrs["value"] == 0:
        return value
    return Node("add", (base, value), {}, value.shape, value.dtype, value.origin)


def _order(node: Node, known: Unsorting) -> None:
    """Sorting gives keys in order, and the order; sorting the order gives its inverse."""
    x = node.operands[0] if node.operands else None
    if x is None:
        return
    if node.op in _SAME:
        for facts in (known.orders, known.back):
            if x in facts:
                facts[node] = facts[x]
        if x in known.tokens:
            known.tokens[node] = known.tokens[x]
    if node.op == "sort" and node.rank == 1:
        if node.attrs["part"] == 0:
            known.sorted(node, x, x)
        elif x in known.orders:
            known.back[node] = known.orders[x]
        else:
            known.orders[node] = x
    if node.op in ("scatter", "index_put") and len(node.operands) == 3 and node.rank == 1:
        _, index, values = node.operands
        counts = values.op == "arange" and (values.attrs["start"], values.attrs["step"]) == (0, 1)
        if counts and index in known.orders and same(values.shape[0], node.shape[0]):
            known.back[node] = known.orders[index]


def _token(node: Node, known: Unsorting) -> None:
    """A row's number divided by the rows of a token is the token's."""
    if node.op == "div" and node.attrs.get("rounding") == "floor":
        order, count = node.args
        if isinstance(order, Node) and order in known.orders and isinstance(count, int):
            known.tokens[node] = (known.orders[order], count)


def _picked(node: Node, known: Unsorting) -> None:
    """Rows picked in an order are sorted; a table's rows picked by sorted keys are those picked by the keys, sorted."""
    picked = picks(node)
    if picked is None:
        return
    x, index = picked
    if index in known.orders:
        known.sorted(node, known.orders[index], x)
    elif index in known.tokens:
        keys, count = known.tokens[index]
        copies = Node("repeat_interleave", (x,), {"repeats": count, "dim": 0}, node.shape, node.dtype, node.origin)
        known.sorted(node, keys, copies)
    elif index in known.plain and x not in known.plain:
        keys, plain = known.plain[index]
        known.sorted(node, keys, replace(node, args=(x, plain)))


def _grouped(node: Node, known: Unsorting) -> None:
    """A product by groups of sorted rows, as many in each group as there are keys of it."""
    if node.op != "grouped_matmul":
        return
    x, weight, ends = node.operands
    if x not in known.plain or (counted := _counted(ends)) is None:
        return
    keys, rows = known.plain[x]
    if counted is keys or known.plain.get(counted, (None, None))[1] is keys:
        args = (rows, weight, keys)
        known.sorted(node, keys, replace(node, op="indexed_linear", args=args, attrs={"transposed": True}))


def _counted(ends: Node) -> Node | None:
    """The keys of which a running count is one."""
    node, summed = ends, False
    while node.operands:
        summed |= node.op == "cumsum"
        if _counts_each(node):
            return _uncast(node.operands[0]) if summed else None
        if node.op not in ("cumsum", *_SAME):
            return None
        node = node.operands[0]
    return None


def _counts_each(node: Node) -> bool:
    """Whether a histogram of whole numbers has a bin for each."""
    if node.op == "histc":
        return node.attrs["low"] == 0 and node.attrs["high"] in (node.attrs["bins"] - 1, node.attrs["bins"])
    return node.op == "bincount"


def _uncast(node: Node) -> Node:
    while node.op in _SAME:
        (node,) = node.operands
    return node


def _within(node: Node, known: Unsorting) -> None:
    """An op within rows, on rows in one order."""
    own = {a: known.plain[a] for a in node.operands if a in known.plain}
    if len({keys for keys, _ in own.values()}) != 1 or node in known.plain:
        return
    keys = next(iter(own.values()))[0]
    found = follow(node, {a: Rows(1, rows) for a, (_, rows) in own.items()}, keys.shape[0])
    if found is not None and found.lead == 1:
        known.sorted(node, keys, found.node)
