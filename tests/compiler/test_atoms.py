"""Atoms: what reshapes, cuts and joins have in common, against published facts and by brute force."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np
import pytest
import sympy
import yaml
from graphs import cat, graph, op, parameter, permute, piece, reshape, slice_
from hypothesis import given, settings
from hypothesis import strategies as st

from graphpar.ir.graph import Node
from graphpar.names.atoms import Atoms
from graphpar.names.infer import Unified, unify

FACTS = Path(__file__).parents[1] / "facts"
RESHAPES = yaml.safe_load((FACTS / "reshape.yaml").read_text())
LOCAL = yaml.safe_load((FACTS / "local_reshape.yaml").read_text())


def by_id(fact) -> str:
    return fact["id"]


def reshaped(*shapes: tuple[int, ...]) -> tuple[Unified, list[Node]]:
    """One tensor in several shapes, one after the other."""
    nodes = [parameter("x", *shapes[0])]
    for shape in shapes[1:]:
        nodes.append(reshape(nodes[-1], *shape))
    return unify(graph(nodes[-1]), {}), nodes


def spelled(u: Unified, nodes: list[Node], letters: dict[int, str]) -> str:
    texts = []
    for node in nodes:
        words = [" ".join(letters[a] for a in axis) or "1" for axis in u.axes(node)]
        texts.append(" ".join(f"({w})" if " " in w else w for w in words))
    return " -> ".join(texts)


def letters_of(u: Unified, nodes: list[Node], text: str) -> dict[int, str]:
    """The letters of an expectation, given to atoms in the order in which both name them first."""
    words = [w for w in text.replace("->", " ").replace("(", " ").replace(")", " ").split() if w != "1"]
    atoms = [a for node in nodes for axis in u.axes(node) for a in axis]
    return dict(zip(dict.fromkeys(atoms), dict.fromkeys(words), strict=True))


@pytest.mark.parametrize("fact", RESHAPES, ids=by_id)
def test_a_reshape_shares_the_factors_that_others_found(fact) -> None:
    u, nodes = reshaped(tuple(fact["from"]), tuple(fact["to"]))
    letters = letters_of(u, nodes, fact["axes"])
    assert spelled(u, nodes, letters) == fact["axes"]
    assert {letters[a]: u.atoms.size[a] for a in letters} == fact["sizes"]
    whole = {a for w in u.signatures[nodes[-1]].whole for a in u.atoms.resolve([w])}
    assert sorted(letters[a] for a in whole) == sorted(fact.get("whole", "").split())


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_a_tensor_without_elements_relates_nothing_that_could_be_cut(shape) -> None:
    """R7: others have no rule for it. Here no factor of it has more than one index to give to a rank."""
    u, nodes = reshaped(shape, tuple(reversed(shape)))
    shared = {a for axis in u.axes(nodes[0]) for a in axis} & {a for axis in u.axes(nodes[1]) for a in axis}
    assert prod(u.atoms.size[a] for a in shared) == 0 or not shared


# ---- parts of one rank --------------------------------------------------------------------------------------------


def part(x: np.ndarray, axes: list[list[int]], u: Unified, atom: int, rank: int, ranks: int) -> np.ndarray:
    """One rank's block of one factor, every axis row-major over its factors."""
    sizes = [[u.atoms.size[a] for a in axis] for axis in axes]
    unfolded = x.reshape([s for axis in sizes for s in axis])
    at = [a for axis in axes for a in axis].index(atom)
    block = u.atoms.size[atom] // ranks
    cut = unfolded.take(range(rank * block, (rank + 1) * block), axis=at)
    local = [prod(s // ranks if a == atom else s for a, s in zip(axis, own)) for axis, own in zip(axes, sizes)]
    return cut.reshape(local)


def divisors(n: int) -> list[int]:
    return [d for d in range(2, n + 1) if n % d == 0]


def assert_local(u: Unified, nodes: list[Node]) -> int:
    """Each reshape of a rank's part is the rank's part of the reshape; returns how many cuts that was."""
    count = 0
    whole = np.arange(prod(nodes[0].shape)).reshape(nodes[0].shape)
    for before, after in pairwise(nodes):
        old, new = (list(map(list, u.axes(n))) for n in (before, after))
        needed = {a for w in u.signatures[after].whole for a in u.atoms.resolve([w])}
        x, y = whole.reshape(before.shape), whole.reshape(after.shape)
        for atom in {a for axis in old for a in axis} - needed:
            for ranks in divisors(u.atoms.size[atom]):
                for rank in range(ranks):
                    want = part(y, new, u, atom, rank, ranks)
                    got = part(x, old, u, atom, rank, ranks).reshape(want.shape)
                    assert (got == want).all(), (before.shape, after.shape, u.atoms.size[atom], ranks, rank)
                    count += 1
    return count


@pytest.mark.parametrize("fact", RESHAPES, ids=by_id)
def test_every_shared_factor_can_be_cut_by_every_divisor(fact) -> None:
    """R24, with each factor of the published rules; small stand-ins for the large sizes keep the factors."""
    small = {512: 64, 2048: 4}
    shapes = [tuple(small.get(s, s) for s in fact[k]) for k in ("from", "to")]
    if fact["id"] == "R12":
        shapes[1] = (4, 1, 32, 4)
    u, nodes = reshaped(*shapes)
    assert assert_local(u, nodes) > 0 or fact.get("whole") == "i j k l"


@pytest.mark.parametrize("fact", LOCAL, ids=by_id)
def test_what_a_rank_holds(fact) -> None:
    u, nodes = reshaped(tuple(fact["from"]), tuple(fact["to"]))
    atoms = dict(zip("ijkl", dict.fromkeys(a for n in nodes for axis in u.axes(n) for a in axis)))
    whole = np.arange(prod(fact["from"])).reshape(fact["from"])
    axes = list(map(list, u.axes(nodes[0])))
    assert part(whole, axes, u, atoms[fact["cut"]], 0, fact["ranks"]).flatten().tolist() == fact["holds"]
    assert assert_local(u, nodes)


def factorisations(total: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes of this many elements, ones included."""

    def grow(rest: int) -> st.SearchStrategy[tuple[int, ...]]:
        choices = [d for d in range(1, rest + 1) if rest % d == 0]
        return st.sampled_from(choices).flatmap(
            lambda d: st.just((d,)) if d == rest else grow(rest // d).map(lambda tail: (d, *tail))
        )

    return grow(total).filter(lambda shape: len(shape) <= 5)


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_any_chain_of_reshapes_can_be_cut_along_what_it_shares(data) -> None:
    """R24, over chains: later reshapes refine what earlier ones found, everywhere at once."""
    total = data.draw(st.sampled_from([8, 12, 24, 30, 36, 48, 60]))
    shapes = data.draw(st.lists(factorisations(total), min_size=2, max_size=4))
    u, nodes = reshaped(*shapes)
    for node in nodes:
        assert [prod(u.atoms.size[a] for a in axis) for axis in u.axes(node)] == list(node.shape)
    assert_local(u, nodes)


# ---- refinement, twins, sums ---------------------------------------------------------------------------------------


def test_a_refinement_holds_everywhere_at_once() -> None:
    atoms = Atoms()
    a, b = atoms.new(12), atoms.new(12)
    atoms.unify([a], [b])
    first = atoms.refine(a, (3, 4))
    assert atoms.resolve([b]) == atoms.resolve([a]) == list(first)
    second = atoms.refine(first[1], (2, 2))
    assert atoms.resolve([b]) == [first[0], *second]
    assert atoms.total([b]) == 12


def test_a_symbolic_size_is_divided_exactly_or_not_at_all() -> None:
    seq = sympy.Symbol("seq", integer=True, positive=True)
    atoms = Atoms()
    flat, batch, length = atoms.new(4 * seq), atoms.new(4), atoms.new(seq)
    assert atoms.unify([flat], [batch, length]) == ([], [])
    assert atoms.resolve([flat]) == [atoms.find(batch), atoms.find(length)]
    odd, other = atoms.new(seq + 1), atoms.new(seq)
    assert atoms.unify([odd], [other]) == ([odd], [other])


def test_the_second_use_of_a_product_is_a_product_of_second_uses() -> None:
    atoms = Atoms()
    a = atoms.new(12)
    twin = atoms.twin(a)
    assert twin != a and atoms.twin(twin) == a and atoms.is_twin(twin) and not atoms.is_twin(a)
    parts = atoms.refine(a, (3, 4))
    assert atoms.resolve([twin]) == [atoms.twin(p) for p in parts]


def test_what_unifies_with_an_atom_does_not_unify_with_its_second_use() -> None:
    atoms = Atoms()
    a, b = atoms.new(6), atoms.new(6)
    twin = atoms.twin(a)
    atoms.unify([a], [b])
    assert atoms.find(b) == atoms.find(a) != atoms.find(twin)
    assert atoms.related(b, twin)


def test_scores_range_over_seq_and_its_second_use() -> None:
    x = parameter("x", 6, 4)
    scores = op("matmul", x, permute(x, 1, 0), shape=(6, 6))
    u = unify(graph(scores), {})
    ((query,), (key,)) = u.axes(scores)
    assert u.atoms.twin(query) == key
    mixed = op("matmul", scores, x, shape=(6, 4))
    u = unify(graph(mixed), {})
    assert u.axes(mixed) == u.axes(mixed.operands[1])
    (own,) = u.axes(x)[0]
    assert u.atoms.is_twin(next(iter(u.signatures[mixed].summed))) and not u.atoms.is_twin(own)


def test_unequal_parts_make_a_sum() -> None:
    w = parameter("w", 24, 5)
    parts = [op("segment", w, shape=(n, 5), dim=0, sizes=(12, 4, 8), index=i) for i, n in enumerate((12, 4, 8))]
    u = unify(graph(*(reshape(p, int(p.shape[0]) // 2, 2, 5) for p in parts)), {})
    ((atom,), _) = u.axes(w)
    segments = u.atoms.segments(atom)
    assert [u.atoms.total(s) for s in segments] == [12, 4, 8]
    assert [[u.atoms.size[a] for a in u.atoms.resolve(s)] for s in segments] == [[6, 2], [2, 2], [4, 2]]
    assert [u.axes(p)[0] for p in parts] == [tuple(u.atoms.resolve(s)) for s in segments]


def test_joining_unequal_parts_makes_the_same_sum() -> None:
    a, b = parameter("a", 3, 5), parameter("b", 4, 5)
    joined = cat(a, b, dim=0)
    u = unify(graph(joined), {})
    ((atom,), _) = u.axes(joined)
    assert [tuple(u.atoms.resolve(s)) for s in u.atoms.segments(atom)] == [u.axes(a)[0], u.axes(b)[0]]


def test_equal_pieces_are_a_constant_times_a_piece() -> None:
    w = parameter("w", 24, 5)
    pieces = [piece(w, 0, 3, i) for i in range(3)]
    u = unify(graph(*pieces), {})
    pack, own = u.axes(w)[0]
    assert pack in u.atoms.constant and own not in u.atoms.constant
    assert [u.axes(p)[0] for p in pieces] == [(own,)] * 3


def test_joining_halves_again_gives_the_axis_they_were_cut_from() -> None:
    """Rotary positions: (-x2, x1) ranges over the same head dimension as (x1, x2)."""
    x = parameter("x", 5, 8)
    left, right = slice_(x, 1, 0, 4), slice_(x, 1, 4, 8)
    turned = op("add", cat(op("neg", right, shape=(5, 4)), left, dim=1), x, shape=(5, 8))
    u = unify(graph(turned), {})
    assert u.axes(turned) == u.axes(x)


def test_every_second_index_is_a_factor_of_its_own() -> None:
    x = parameter("x", 5, 8)
    even, odd = slice_(x, 1, 0, 8, 2), slice_(x, 1, 1, 8, 2)
    u = unify(graph(even, odd), {})
    half, pair = u.axes(x)[1]
    assert [u.atoms.size[a] for a in (half, pair)] == [4, 2] and pair in u.atoms.constant
    assert u.axes(even)[1] == u.axes(odd)[1] == (half,)


def test_sizes_that_are_equal_by_accident_stay_apart() -> None:
    """R25: nothing but an op makes two dimensions one."""
    x, w = parameter("x", 8, 8, 8), parameter("w", 8, 8)
    y = op("linear", reshape(x, 8, 8, 8), w, None, shape=(8, 8, 8))
    u = unify(graph(y), {})
    atoms = [a for axis in (*u.axes(x), *u.axes(w)) for a in axis]
    assert len(set(atoms)) == 4
    assert u.axes(x)[2] == u.axes(w)[1] and u.axes(y)[2] == u.axes(w)[0]
