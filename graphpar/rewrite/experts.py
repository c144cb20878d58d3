"""A mixture of experts in five ops: route, dispatch, expert_linear, expert_bias, combine.

    routing = route(chosen)                    chosen [tokens, topk]: the experts of each token
    rows    = dispatch(x, routing)             x [tokens, d] -> [rows, d], a row for each choice, by expert
    rows    = expert_linear(rows, w, routing)  w [experts, n, d] -> [rows, n], each row with its expert's matrix
    rows    = expert_bias(rows, b, routing)    b [experts, n]
    y       = combine(rows, weights, routing)  weights [tokens, topk] -> [tokens, n], a weighted sum over each token's

Between dispatch and combine stand ops that work within rows. What one section consists of is found from the choice of
experts on, by what reads what.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod

from graphpar.ir.graph import Graph, Node, Origin, Size, rebuild
from graphpar.rewrite.permuted import picks
from graphpar.rewrite.rowwise import Rows, follow, rows_of, same, with_shape

_OF_ELEMENTS = ("cast", "upcast", "detach")  # the same of copies as of what is copied
_SAME = frozenset({"reshape", "unsqueeze", *_OF_ELEMENTS})  # the same choice


@dataclass
class Section:
    """One mixture: the choice of experts [*tokens, topk] and, for each value by row, its rows by expert.

    `weighted` are rows times a weight each, as rows and weights; `biases` the rows of a table of biases.
    """

    chosen: Node
    routing: Node
    values: dict[Node, Rows] = field(default_factory=dict[Node, Rows])
    weighted: dict[Node, tuple[Rows, Node]] = field(default_factory=dict[Node, "tuple[Rows, Node]"])
    biases: dict[Node, Node] = field(default_factory=dict[Node, Node])
    sent: dict[Node, Node] = field(default_factory=dict[Node, Node])

    @property
    def count(self) -> Size:
        """The number of rows."""
        return self.routing.shape[0]

    @property
    def tokens(self) -> tuple[Size, ...]:
        """The dimensions of tokens."""
        return self.chosen.shape[:-1]


def find(graph: Graph) -> Graph:
    """The graph with every mixture of experts in these ops."""
    return rebuild(graph, _Finder())


@dataclass
class _Finder:
    sections: dict[Node, Section] = field(default_factory=dict[Node, Section])

    def __call__(self, node: Node) -> Node | None:
        if node.op == "indexed_linear":
            self._linear(node)
            return None
        for section in self.sections.values():
            if (found := _combined(node, section)) is not None:
                return found
            _learn(node, section)
        return None

    def _linear(self, node: Node) -> None:
        x, weight, index = node.operands
        chosen = _root(index)
        if chosen is None:
            return
        section = self.sections.get(chosen) or _section(chosen, weight.shape[0], node)
        while x.op == "upcast":  # to the dtype of the matrices, in which `expert_linear` computes
            x = x.operands[0]
        rows = _entering(x, section, node.origin)
        if rows is not None:
            self.sections[chosen] = section
            weight, turned = _unturned(weight)
            made = replace(
                node,
                op="expert_linear",
                args=(rows, weight, section.routing),
                shape=(section.count, node.shape[-1]),
                attrs={"transposed": node.attrs["transposed"] != turned},
            )
            section.values[node] = Rows(node.rank - 1, made)


def _unturned(weight: Node) -> tuple[Node, bool]:
    """A stack of matrices as it is stored, and whether it was turned."""
    if weight.op == "permute" and weight.attrs["order"] == (0, 2, 1):
        return weight.operands[0], True
    return weight, False


def _root(index: Node) -> Node | None:
    """The choice of experts that an index repeats in another shape."""
    node = index
    while node.op in _SAME:
        node = node.operands[0]
    return node if node.dtype.startswith("int") else None


def _section(root: Node, experts: Size, node: Node) -> Section:
    """A section for a choice: the best k of each token, or one."""
    several = root.op == "topk"
    chosen = root if several else with_shape(root, (*root.shape, 1))
    origin = replace(node.origin, names=())
    count = prod(chosen.shape)
    routing = Node("route", (chosen,), {"experts": experts}, (count,), "routing", origin)
    return Section(chosen, routing)


def _entering(x: Node, section: Section, origin: Origin) -> Node | None:
    """The rows by expert of an operand: known, or copies of what each token has."""
    if x in section.values:
        return section.values[x].node
    if x.op in _OF_ELEMENTS:
        inner = _entering(x.operands[0], section, origin)
        return inner and replace(x, args=(inner,), shape=inner.shape)
    token = _of_token(x, section)
    if token is None:
        return None
    if token not in section.sent:
        shape = (section.count, token.shape[-1])
        made = Node("dispatch", (token, section.routing), {}, shape, token.dtype, replace(origin, names=()))
        section.sent[token] = made
    return section.sent[token]


def _of_token(x: Node, section: Section) -> Node | None:
    """The value [*tokens, d] whose copies, one for each choice of a token, are the rows of x."""
    tokens, topk, width = prod(section.tokens), section.chosen.shape[-1], x.shape[-1]
    node = x
    while node.op in ("reshape", "unsqueeze", "expand", "repeat_interleave"):
        inner = node.operands[0]
        if node.op == "repeat_interleave" and not _copies(node, tokens, topk):
            return None
        if node.op == "expand" and not _spreads(inner, tokens, topk):
            return None
        node = inner
        if same(prod(node.shape), tokens * width) and node.shape[-1] == width:
            return node if node.shape[:-1] == section.tokens else with_shape(node, (*section.tokens, width))
    unchosen = topk == 1 and same(prod(x.shape), tokens * width)
    return with_shape(x, (*section.tokens, width)) if unchosen else None


def _copies(node: Node, tokens: Size, topk: Size) -> bool:
    """Whether each token is repeated in place, as often as it has choices."""
    before = prod(node.operands[0].shape[: node.attrs["dim"] + 1])
    return node.attrs["repeats"] == topk and same(before, tokens)


def _spreads(inner: Node, tokens: Size, topk: Size) -> bool:
    """Whether the dimension of choices, behind those of tokens, is the one that is copied along."""
    lead = rows_of(inner.shape, tokens)
    return lead is not None and inner.shape[lead : lead + 1] == (1,)


def _learn(node: Node, section: Section) -> None:
    """What a node does to the values of a section."""
    picked = picks(node)
    if picked is not None and _root(picked[1]) is section.chosen and picked[0].rank == 2:
        section.biases[node] = picked[0]
    elif node.op in ("reshape", "cast", "upcast") and node.operands[0] in section.biases:
        section.biases[node] = section.biases[node.operands[0]]
    elif (found := _biased(node, section) or follow(node, section.values, section.count)) is not None:
        section.values[node] = found
    elif node.op == "mul":
        _weigh(node, section)
    elif node.op == "reshape" and node.operands[0] in section.weighted:
        rows, weights = section.weighted[node.operands[0]]
        lead = rows_of(node.shape, section.count)
        if lead is not None and prod(node.shape[lead:]) == prod(rows.node.shape[1:]):
            section.weighted[node] = (Rows(lead, rows.node), weights)


def _biased(node: Node, section: Section) -> Rows | None:
    """Rows and the bias of each row's expert."""
    if node.op != "add" or len(node.operands) != 2:
        return None
    for h, b in (node.operands, node.operands[::-1]):
        if h in section.values and b in section.biases and h.shape == node.shape == b.shape:
            rows = section.values[h]
            args = (rows.node, section.biases[b], section.routing)
            return Rows(rows.lead, replace(node, op="expert_bias", args=args, shape=rows.node.shape))
    return None


def _weigh(node: Node, section: Section) -> None:
    """Rows times a number for each row."""
    if len(node.operands) != 2:
        return
    for h, w in (node.operands, node.operands[::-1]):
        if h in section.values and h.shape == node.shape and w not in section.values:
            lead = rows_of(w.shape, section.count)
            if lead is not None and all(s == 1 for s in w.shape[lead:]):
                section.weighted[node] = (section.values[h], with_shape(w, section.chosen.shape))


def _combined(node: Node, section: Section) -> Node | None:
    """The sum over a token's rows, each times its weight."""
    if node.op == "sum" and not node.attrs["keep"]:
        return _summed(node, section)
    if node.op == "einsum":
        return _contracted(node, section)
    return None


def _summed(node: Node, section: Section) -> Node | None:
    (x,) = node.operands
    rows, weights = section.weighted.get(x) or (section.values.get(x), None)
    if rows is None:
        return None
    at = len(section.tokens) if x.shape[: len(section.tokens)] == section.tokens else rows_of(x.shape, _tokens(section))
    topk = section.chosen.shape[-1]
    if at is None or node.attrs["dims"] != (at,) or x.shape[at] != topk or x.rank != at + 2:
        return None
    return _combine(node, rows.node, weights, section)


def _tokens(section: Section) -> Size:
    return prod(section.tokens)


def _contracted(node: Node, section: Section) -> Node | None:
    """`tkd, tk -> td`: the product with the weights and the sum at once."""
    left, _, right = node.attrs["equation"].partition("->")
    terms = left.split(",")
    if len(terms) != 2:
        return None
    (a, b), (of_a, of_b) = node.operands, terms
    for x, w, term, other in ((a, b, of_a, of_b), (b, a, of_b, of_a)):
        weighs = x in section.values and w not in section.values and w.shape == section.chosen.shape
        if weighs and term[:-1] == other and right == other[:-1] + term[-1]:
            return _combine(node, section.values[x].node, w, section)
    return None


def _combine(node: Node, rows: Node, weights: Node | None, section: Section) -> Node:
    shape = (*section.tokens, rows.shape[-1])
    args = (rows, weights, section.routing)
    made = Node("combine", args, {}, shape, node.dtype, node.origin)
    return with_shape(made, node.shape)
