"""model.py is read without being run."""

import pytest

from graphpar.viz.program import Loop, Statement, read_program

TEXT = '''
import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """h.*.mlp"""

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.tp = mesh["tp"]
        self.fc = Parameters(
            weight=mesh.parameter(8, 4),  # d_model d_ff@tp
            act=Act(mesh),
        )

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:  # batch seq d_model, (heads d_head)
        x = all_gather(x, self.tp, dim=1)          # batch seq d_model             fc cuts d_ff, so it needs all of seq
        a, b = x.chunk(2, dim=-1)                  # batch seq (2 d_ff@tp)
        h = attention(
            a, self.fc.weight.T, stream=self.random,
        )                                          # batch seq d_ff@tp   partial(tp)
        h = self.fc.act(h)                         # batch seq d_ff@tp
        return h, -y


class Act(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


class Model(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.h = nn.ModuleList(MLP(mesh) for _ in range(3))
        self.k = nn.ModuleList(block(mesh) for _ in range(2) for block in (MLP, Act))
        self.r = nn.ModuleList(block(mesh) for block in [Act] + [MLP] * 2)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.h:
            x = block(x)
        return x
'''


@pytest.fixture(scope="module")
def classes():
    return read_program(TEXT)


def test_arguments_have_the_axes_of_the_comment(classes):
    assert classes["MLP"].arguments == (("x", "batch seq d_model"), ("y", "(heads d_head)"))


def test_members_of_a_list_are_counted_however_they_are_written(classes):
    assert classes["Model"].children == {
        "h": ("MLP", "MLP", "MLP"),
        "k": ("MLP", "Act", "MLP", "Act"),
        "r": ("Act", "MLP", "MLP"),
    }


def test_a_module_inside_a_holder_of_parameters_is_a_child(classes):
    assert classes["MLP"].children == {"fc.act": ("Act",)}


def test_a_comment_is_axes_then_what_is_pending_then_a_reason(classes):
    gather, _, attention, *_ = classes["MLP"].body
    assert (gather.axes, gather.pending) == ("batch seq d_model", "")
    assert gather.note == "fc cuts d_ff, so it needs all of seq"
    assert (attention.axes, attention.pending) == ("batch seq d_ff@tp", "partial(tp)")


def test_a_statement_over_several_lines_is_shown_on_one(classes):
    attention = classes["MLP"].body[2]
    assert attention.code == "h = attention(a, self.fc.weight.T, stream=self.random,)".replace(",)", ")")
    assert "fc.weight" in attention.selves


def test_each_result_knows_the_variables_behind_it(classes):
    last = classes["MLP"].body[-1]
    assert last.results == (("h",), ("y",)) and not last.bare
    assert classes["Act"].body[0].bare


def test_a_call_of_a_module_and_a_loop_over_modules(classes):
    call = classes["MLP"].body[3]
    assert isinstance(call, Statement) and call.child == "fc.act"
    loop = classes["Model"].body[0]
    assert isinstance(loop, Loop) and (loop.over, loop.variable) == ("h", "block")
