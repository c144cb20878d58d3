"""Masks and positions as functions of position: the function is the tensor, on every size, and causal means causal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy
import torch
from builds import captured
from graphs import graph, op
from hypothesis import given, settings
from hypothesis import strategies as st
from interpret import BATCH, SEQ, evaluate
from torch import Tensor, nn
from zoo import MODELS

from graphpar.capture.capture import Signature, capture
from graphpar.compiler import simplify
from graphpar.ir.graph import Graph, Node
from graphpar.rewrite.evaluate import INDEX, functions, is_causal
from graphpar.rewrite.positions import places, rewrite

SIZES = [(1, 1), (2, 2), (3, 7), (2, 12)]


def table(expression, node: Node, batch: int, seq: int) -> Tensor:
    """The function's value at every index."""
    sizes = {BATCH: batch, SEQ: seq}
    shape = [s if isinstance(s, int) else int(s.subs(sizes)) for s in node.shape]
    if not isinstance(expression, (bool, int)):
        expression = expression.subs(sizes)
    function = sympy.lambdify(INDEX[: node.rank], expression, "math")
    values = [function(*at) for at in torch.cartesian_prod(*map(torch.arange, shape)).reshape(-1, len(shape)).tolist()]
    return torch.tensor([int(v) for v in values]).reshape(shape)


class Masked(nn.Module):
    """A program whose loss reads one value made of positions."""

    def __init__(self, make: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.make = make
        self.register_buffer("tri", torch.ones(16, 16).tril())
        self.register_buffer("tri4", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))
        self.table = nn.Embedding(5, 3)

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        mask = self.make(self, input_ids)
        return self.table(input_ids).sum() + mask.to(torch.float64).sum().float()


def mask_of(make: Callable[[nn.Module, Tensor], Tensor]) -> tuple[Graph, Node]:
    """The captured graph, and the node that holds the mask."""
    found = capture(lambda: Masked(make), Signature(("input_ids", "labels"), {})).graph
    cast = next(n for n in reversed(found.nodes) if n.op == "cast" and n.dtype == "float64")
    return found, cast.operands[0]


def at(ids: Tensor) -> tuple[Tensor, Tensor]:
    place = torch.arange(ids.shape[1])
    return place[:, None], place[None, :]


def compared(make: Callable[[Tensor, Tensor], Tensor]) -> Callable[[nn.Module, Tensor], Tensor]:
    return lambda module, ids: make(*at(ids))


MASKS: dict[str, tuple[Callable[[nn.Module, Tensor], Tensor], bool]] = {
    "keys up to the query": (compared(lambda q, k: k <= q), True),
    "queries from the key on": (compared(lambda q, k: q >= k), True),
    "not in the future": (compared(lambda q, k: ~(k > q)), True),
    "a triangle of ones": (lambda m, ids: torch.ones(ids.shape[1], ids.shape[1]).tril() == 1, True),
    "a triangle of booleans": (lambda m, ids: torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril(), True),
    "not the upper triangle": (lambda m, ids: ~torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1), True),
    "a buffer": (lambda m, ids: m.tri[: ids.shape[1], : ids.shape[1]] != 0, True),
    "a buffer of four dimensions": (lambda m, ids: m.tri4[:, :, : ids.shape[1], : ids.shape[1]].bool(), True),
    "shifted by nothing": (compared(lambda q, k: k + 3 <= q + 3), True),
    "copied over the batch": (
        lambda m, ids: (at(ids)[1] <= at(ids)[0])[None, None].expand(ids.shape[0], 1, -1, -1),
        True,
    ),
    "not itself": (compared(lambda q, k: k < q), False),
    "one step ahead": (compared(lambda q, k: k <= q + 1), False),
    "a window": (compared(lambda q, k: (k <= q) & (q - k < 4)), False),
    "both ways": (compared(lambda q, k: (q - k).abs() < 3 if False else (q - k < 3) & (k - q < 3)), False),
    "the other triangle": (compared(lambda q, k: k >= q), False),
    "a prefix that all see": (compared(lambda q, k: (k <= q) | (k < 3)), False),
    "every second key": (compared(lambda q, k: (k <= q) & (k * 2 < q + 7)), False),
    "everything": (compared(lambda q, k: (k >= 0) & (q >= 0)), False),
    "positions": (lambda m, ids: torch.arange(ids.shape[1]) + 2, False),
    "counted": (lambda m, ids: torch.ones_like(ids).cumsum(-1) - 1, False),
    "a shifted triangle": (lambda m, ids: torch.ones(ids.shape[1], ids.shape[1]).tril(2) > 0, False),
}
BUFFERS = {"tri": torch.ones(16, 16).tril(), "tri4": torch.ones(1, 1, 16, 16).tril()}


@pytest.mark.parametrize("name", MASKS)
def test_the_function_is_the_tensor(name: str) -> None:
    make, causal = MASKS[name]
    source, node = mask_of(make)
    function = functions(source)[node]
    for batch, seq in SIZES:
        ids = torch.zeros(batch, seq, dtype=torch.int64)
        real = make(Masked(make), ids)
        assert torch.equal(table(function, node, batch, seq), real.to(torch.int64)), (name, batch, seq)
    assert (node.rank >= 2 and node.dtype == "bool" and is_causal(function, node.rank)) == causal


@pytest.mark.parametrize("name", MASKS)
def test_what_is_written_out_again_is_the_tensor(name: str) -> None:
    make, _ = MASKS[name]
    source, node = mask_of(make)
    written = rewrite(source, places(source))
    cast = next(n for n in reversed(written.nodes) if n.op == "cast" and n.dtype == "float64")
    for batch, seq in SIZES:
        ids = torch.zeros(batch, seq, dtype=torch.int64)
        given = {"input_ids": ids, "labels": ids, "table.weight": torch.ones(5, 3), **BUFFERS}
        values = evaluate(written, given, {BATCH: batch, SEQ: seq})
        real = make(Masked(make), ids)
        assert torch.equal(values[cast.operands[0]].to(torch.int64), real.to(torch.int64))


CAUSAL = "gpt2 gpt_neox opt llama llama_gqa qwen2 qwen3 phi3".split()


@pytest.mark.parametrize("name", CAUSAL)
def test_the_library_s_chain_of_mask_ops_is_causal_attention(name: str) -> None:
    simple = simplify(captured(MODELS[name]).graph)
    attention = [n for n in simple.nodes if n.op == "sdpa"]
    assert attention and all(n.attrs["causal"] and n.args[3] is None for n in attention)


@pytest.mark.parametrize("name", ["mistral_sliding", "gemma2"])
def test_a_window_is_never_taken_for_causal_attention(name: str) -> None:
    """Every captured mask is evaluated and compared with the rule it was made from, sizes beyond the window included."""
    source = captured(MODELS[name]).graph
    simple = simplify(source)
    window = MODELS[name].config["sliding_window"]
    known = functions(simple)
    masks = {
        n
        for n in known
        if n.dtype == "bool" and n.rank >= 2 and any(u.op in ("sdpa", "where") for u in simple.users()[n])
    }
    assert masks
    seq = 20
    q, k = torch.arange(seq)[:, None], torch.arange(seq)[None, :]
    allowed = [(k <= q), (k <= q) & (q - k < window)]
    tables = [table(known[n], n, 1, seq).reshape(seq, seq).bool() for n in masks]
    assert all(any(torch.equal(t, a) for a in allowed) for t in tables)
    assert any(torch.equal(t, allowed[1]) for t in tables)
    assert all(not torch.equal(t, allowed[0]) or n.op != "sdpa" for n, t in zip(masks, tables, strict=True))


# ---- any program of positions --------------------------------------------------------------------------------------


def position(dim: int) -> Node:
    """The index along dimension `dim` of [seq, seq]."""
    arange = op("arange", shape=(SEQ,), dtype="int64", start=0, stop=SEQ, step=1)
    shape = (SEQ, 1) if dim == 0 else (1, SEQ)
    return op("unsqueeze", arange, shape=shape, dtype="int64", dim=1 - dim)


def spread(*nodes: Node) -> tuple:
    """The shape of nodes of [seq, 1], [1, seq] and [seq, seq] against each other."""
    return tuple(next((n.shape[d] for n in nodes if n.shape[d] != 1), 1) for d in range(2))


numbers = st.recursive(
    st.sampled_from([0, 1]).map(position),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub"]), inner, inner).map(
            lambda t: op(t[0], *t[1:], shape=spread(*t[1:]), dtype="int64")
        ),
        st.tuples(st.sampled_from(["add", "sub", "mul"]), inner, st.integers(-3, 3)).map(
            lambda t: op(t[0], *t[1:], shape=t[1].shape, dtype="int64")
        ),
        inner.map(lambda x: op("neg", x, shape=x.shape, dtype="int64")),
    ),
    max_leaves=4,
)
compares = st.tuples(st.sampled_from("eq ne lt le gt ge".split()), numbers, st.one_of(numbers, st.integers(-4, 6))).map(
    lambda t: op(t[0], *t[1:], shape=spread(*(x for x in t[1:] if isinstance(x, Node))), dtype="bool")
)
masks = st.recursive(
    compares,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner).map(
            lambda t: op(t[0], *t[1:], shape=spread(*t[1:]), dtype="bool")
        ),
        inner.map(lambda x: op("logical_not", x, shape=x.shape, dtype="bool")),
        st.tuples(st.sampled_from(["tril", "triu"]), inner, st.integers(-2, 2)).map(
            lambda t: op(
                t[0], op("expand", t[1], shape=(SEQ, SEQ), dtype="bool"), shape=(SEQ, SEQ), dtype="bool", diagonal=t[2]
            )
        ),
        st.tuples(inner, numbers, st.integers(-2, 2)).map(
            lambda t: op(
                "ne", op("where", *t, shape=spread(*t[:2]), dtype="int64"), 0, shape=spread(*t[:2]), dtype="bool"
            )
        ),
    ),
    max_leaves=4,
)


@settings(max_examples=80, deadline=None)
@given(masks)
def test_any_mask_equals_its_function_and_what_is_written_for_it(mask: Node) -> None:
    out = op("cast", mask, shape=mask.shape, dtype="float64")
    source = graph(out)
    known = functions(source)
    written = rewrite(source, {})
    causal = mask in known and mask.shape == (SEQ, SEQ) and is_causal(known[mask], 2)
    for seq in (1, 2, 6):
        real = evaluate(source, {}, {SEQ: seq})[mask]
        if mask in known:
            assert torch.equal(table(known[mask], mask, 1, seq).bool(), real)
        assert torch.equal(evaluate(written, {}, {SEQ: seq})[written.outputs[0]], real.double())
        if causal:
            assert torch.equal(real, torch.ones(seq, seq, dtype=torch.bool).tril())
