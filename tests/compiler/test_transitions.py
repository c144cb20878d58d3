"""The table of transitions against the published grid, its own transposes, and what the runtime executes."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

import graphpar.runtime as runtime
from graphpar.ir.states import P_MAX, I, P, R, Shard, State
from graphpar.place.route import routes
from graphpar.place.transitions import Transition, transitions

GRID = yaml.safe_load((Path(__file__).parents[1] / "facts" / "transitions.yaml").read_text())
STATES: dict[str, State] = {"I": I, "R": R, "P": P, "S": Shard(1), "T": Shard(2), "M": P_MAX}
GRADIENT = {"I": "I", "R": "P", "P": "R", "S": "S", "T": "T"}


def kinds(steps: tuple[Transition, ...] | None, direction: str) -> list[str] | None:
    """The collectives of some steps, in the order in which they run."""
    if steps is None:
        return None
    found = [getattr(s, direction) for s in (steps if direction == "forward" else reversed(steps))]
    return [k for k in found if k]


@pytest.mark.parametrize("row", GRID, ids=lambda r: f"{r['from']} to {r['to']}")
def test_every_pair_of_states_does_what_the_grid_says(row) -> None:
    found = transitions(STATES[row["from"]], STATES[row["to"]], gradient=True)
    if row["forward"] is None:
        assert found is None
        return
    expected = [[] if row[d] == "id" else [row[d]] for d in ("forward", "backward")]
    assert [kinds(found, d) for d in ("forward", "backward")] == expected


def test_the_grid_has_every_pair() -> None:
    listed = {(row["from"], row["to"]) for row in GRID}
    pairs = {(a, b) for a, b in product("IRPSM", "IRPSM") if a != b} | {("S", "T")}
    assert listed == pairs


@pytest.mark.parametrize("state", STATES)
def test_no_step_leads_from_a_state_to_itself(state: str) -> None:
    assert transitions(STATES[state], STATES[state], gradient=True) == ()


@pytest.mark.parametrize(("have", "want"), [p for p in product("IRPS", "IRPS") if p[0] != p[1]] + [("S", "T")])
def test_the_transpose_of_a_step_is_a_step_of_the_table(have: str, want: str) -> None:
    """Backward leads from the gradient of the result to that of the operand, by the table's own step."""
    there = transitions(STATES[have], STATES[want], gradient=True)
    back = transitions(STATES[GRADIENT[want]], STATES[GRADIENT[have]], gradient=True)
    if there is not None and back is not None:
        assert kinds(there, "backward") == kinds(back, "forward")
        assert kinds(there, "forward") == kinds(back, "backward")


@pytest.mark.parametrize(("have", "want"), [p for p in product("IRPS", "IRS") if p[0] != p[1]])
def test_without_a_gradient_nothing_runs_backward_and_i_is_r(have: str, want: str) -> None:
    found = transitions(STATES[have], STATES[want], gradient=False)
    assert found is not None
    assert kinds(found, "backward") == [] or have == "P"
    if "R" in (have, want):
        other = transitions(*(STATES["I" if s == "R" else s] for s in (have, want)), gradient=False)
        assert kinds(found, "forward") == kinds(other, "forward")


STEPS = [("I", "R"), ("P", "I"), ("S", "R"), ("P", "S"), ("S", "I"), ("I", "S"), ("S", "T"), ("R", "S"), ("P", "R")]


@pytest.mark.parametrize(("have", "want"), STEPS)
def test_the_runtime_runs_what_the_table_promises(have: str, want: str) -> None:
    """Each step's op exists, gives a value of the shape of its state, and logs exactly the table's collectives."""
    steps = transitions(STATES[have], STATES[want], gradient=True)
    assert steps

    def rank(mesh: runtime.Mesh):
        axis = mesh["tp"]
        shape = [2 if have == "S" else 4, 4]
        x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        y = x
        for step in steps:
            dims = {"all_to_all": (1, 0)}.get(step.op, (0,))
            takes_dim = step.op not in ("grad_all_reduce", "all_reduce")
            y = getattr(runtime, step.op)(y, axis, *(dims if takes_dim else ()))
        mesh.log.append("turn")
        y.sum().backward()
        return list(y.shape), [e if e == "turn" else e.kind for e in mesh.log]

    for shape, log in runtime.simulate({"tp": 2}, rank, log=True):
        turn = log.index("turn")
        assert shape == {"S": [2, 4], "T": [4, 2]}.get(want, [4, 4])
        assert log[:turn] == kinds(steps, "forward")
        assert log[turn + 1 :] == kinds(steps, "backward")


# ---- several mesh axes at once ------------------------------------------------------------------------------------

AXES = ("dp", "cp", "tp")
FACTORS = (1, 2)
per_axis = st.sampled_from([I, R, Shard(1), Shard(2)])


@given(
    st.fixed_dictionaries(dict.fromkeys(AXES, st.one_of(per_axis, st.just(P)))),
    st.fixed_dictionaries(dict.fromkeys(AXES, per_axis)),
    st.fixed_dictionaries(dict.fromkeys(FACTORS, st.permutations(AXES))),
)
def test_blocks_are_cut_and_gathered_innermost_first(have, want, order) -> None:
    """T7: to gather or add an axis around an inner one would give the right shape and the wrong order of blocks."""
    assume(all(transitions(have[a], want[a], gradient=True) is not None for a in AXES))
    assert_innermost_first(have, want, order)


def test_an_axis_moves_to_a_factor_only_when_others_have_left_it() -> None:
    have: dict[str, State] = {"dp": Shard(1), "cp": I, "tp": Shard(2)}
    assert_innermost_first(have, {"dp": I, "cp": I, "tp": Shard(1)}, dict.fromkeys(FACTORS, AXES))


def assert_innermost_first(have, want, order) -> None:
    state = dict(have)
    nested = {f: sorted((a for a in AXES if have[a] == Shard(f)), key=order[f].index) for f in FACTORS}
    for axis, target in routes(have, want, lambda f: order[f]):
        before = state[axis]
        assert transitions(before, target, gradient=True) is not None, (axis, before, target)
        if isinstance(before, Shard):
            assert nested[before.factor][-1] == axis, "an outer block is gathered around an inner one"
            nested[before.factor].pop()
        if isinstance(target, Shard):
            nested[target.factor].append(axis)
        state[axis] = target
    assert state == want
    assert nested == {f: sorted((a for a in AXES if want[a] == Shard(f)), key=order[f].index) for f in FACTORS}


def test_an_inner_cut_makes_room_for_an_outer_one() -> None:
    """S@cp over an existing S@tp of the same factor, cp outermost: tp is gathered, both are cut again."""
    have: dict[str, State] = {"cp": I, "tp": Shard(1)}
    want: dict[str, State] = {"cp": Shard(1), "tp": Shard(1)}
    assert routes(have, want, lambda f: ("cp", "tp")) == [("tp", I), ("cp", Shard(1)), ("tp", Shard(1))]


def test_what_needs_no_data_comes_first() -> None:
    have: dict[str, State] = {"dp": I, "tp": Shard(1)}
    want: dict[str, State] = {"dp": Shard(2), "tp": R}
    assert routes(have, want, lambda f: ("dp", "tp")) == [("dp", Shard(2)), ("tp", R)]
