"""Meshes and worlds, and sizes that do not divide."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphpar.builds.specs import with_ranks
from graphpar.errors import GraphparError
from graphpar.language import parse_spec
from graphpar.language.divide import divisors, factorisation, needs_two_axes, not_divisible
from graphpar.language.mesh import axis_size, check_world, resolve_rest, world_size
from graphpar.language.schema import LayoutRule, MeshSpec


def mesh(text: str) -> MeshSpec:
    return parse_spec(f"version: 1\nmesh: {text}\nlayout: []\n").mesh


def test_rest_is_what_the_other_axes_leave_over():
    # torchtitan: world 8, replicate 2, tp 2, shard = rest: 2
    resolved = resolve_rest(mesh("{replicate: 2, shard: rest, tp: 2}"), 8)
    assert resolved.sizes() == {"replicate": 2, "shard": 2, "tp": 2}
    assert world_size(resolved) == 8


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 60))
def test_a_mesh_with_rest_fits_exactly_the_multiples(a, b, world):
    given_mesh = mesh(f"{{a: {a}, r: rest, b: {b}}}")
    assert world_size(given_mesh) is None
    assert (check_world(given_mesh, world) == ()) == (world % (a * b) == 0)


def test_a_mesh_of_numbers_fits_one_world():
    assert check_world(mesh("{dp: 2, tp: 4}"), 8) == ()
    (problem,) = check_world(mesh("{pp: 2, dp: 2, tp: 4}"), 8)
    assert problem.code == "world-size" and problem.why == ("pp 2 * dp 2 * tp 4 = 16; started: 8",)
    assert resolve_rest(mesh("{dp: 2, tp: 4}"), None) == mesh("{dp: 2, tp: 4}")
    with pytest.raises(GraphparError):
        resolve_rest(mesh("{dp: 2, tp: 4}"), 4)
    with pytest.raises(GraphparError):
        resolve_rest(mesh("{dp: rest, tp: 4}"), None)


def test_an_alias_has_the_size_of_what_it_stands_for():
    named = mesh("{dp: 2, cp: 3, tp: 4, aliases: {ep: dp, flat: [cp, tp]}}")
    assert [axis_size(named, name) for name in ("dp", "ep", "flat")] == [2, 2, 12]


@given(st.integers(1, 3000))
def test_divisors_and_factors(size):
    assert divisors(size) == tuple(n for n in range(1, size + 1) if size % n == 0)
    if "is prime" in factorisation(size):
        assert len(divisors(size)) == 2
    else:
        left, right = factorisation(size).split(" = ")
        assert int(left) == eval(right.replace("^", "**")) == size


def test_an_uneven_cut_names_the_sizes_that_work():
    text = "\n".join(not_divisible(LayoutRule("vocab", ("tp",)), 50257, 4, pad=True).why)
    assert "50257 mod 4 = 1" in text and "50257 = 29 * 1733" in text
    assert "50260" in str(not_divisible(LayoutRule("vocab", ("tp",)), 50257, 4, pad=True).fix)


@pytest.mark.parametrize(
    ("kv", "group", "parts", "outer", "inner"), [(2, 16, 8, 2, 4), (2, 2, 4, 2, 2), (6, 2, 4, 2, 2)]
)
def test_heads_that_need_two_axes_get_them(kv, group, parts, outer, inner):
    fix = needs_two_axes(LayoutRule("heads", ("tp",)), kv, group, parts).fix or ""
    assert f"mesh: {{tp: {outer}, tp_q: {inner}}}" in fix
    assert kv % outer == 0 and group % inner == 0 and outer * inner == parts


def test_heads_that_fit_one_axis_otherwise_say_so():
    assert needs_two_axes(LayoutRule("heads", ("tp",)), 1, 8, 8).fix == "- q_group: tp"
    assert needs_two_axes(LayoutRule("heads", ("tp",)), 1, 3, 2).fix == "- heads: none"
    assert needs_two_axes(LayoutRule("heads", ("tp",)), 2, 6, 8).fix == "tp: 2"


def test_a_pipeline_is_measured_once_its_ranks_are_known():
    words = "pipeline: {axis: pp, schedule: interleaved, microbatches: 6}"
    spec = parse_spec(f"version: 1\nmesh: {{pp: rest, tp: 2}}\nlayout: []\n{words}\n")
    assert with_ranks(spec, 4).mesh.sizes() == {"pp": 2, "tp": 2}
    with pytest.raises(GraphparError) as caught:
        with_ranks(spec, 8)
    assert [d.code for d in caught.value.diagnostics] == ["bad-microbatches"]
