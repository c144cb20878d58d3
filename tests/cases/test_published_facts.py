"""Facts that do not come from this code: what may meet what, who holds what, and how often ranks speak."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from builds import Small, compiled, layout
from parts import Block, Decoder
from torch import nn
from written import TENSOR, Written

from graphpar.check.dims import Factor, Wrong, dimension, whole
from graphpar.check.rules import RULES, Trace, applied
from graphpar.check.value import Value
from graphpar.codegen.plan import flat
from graphpar.errors import GraphparError
from graphpar.runtime.shards import Place, cut
from tools.mutants.table import MUTANTS

pytestmark = pytest.mark.xdist_group("cases")
FACTS = Path(__file__).parents[1] / "facts"


def facts(name: str) -> Any:
    found = yaml.safe_load((FACTS / f"{name}.yaml").read_text())
    return pytest.mark.parametrize("fact", [pytest.param(f, id=f["id"]) for f in found])


# ---- what may meet what ------------------------------------------------------------------------------------------

ROWS = (dimension([[Factor(4, ("tp",))]]), whole(4))
PLAIN = (whole(4), whole(4))
VALUES = {
    "I": Value(PLAIN, grad=True),
    "R": Value(PLAIN, replicated=frozenset({"tp"}), grad=True),
    "S": Value(ROWS, grad=True),
    "P": Value(PLAIN, partial=frozenset({"tp"}), grad=True),
}
VALUES |= {f"{state} row": replace(VALUES[state], dims=PLAIN[:1]) for state in "IRP"}


def operand(word: Any) -> Any:
    return tuple(map(operand, word)) if isinstance(word, list) else VALUES.get(word, word)


@facts("typing")
def test_an_op_waits_for_no_sum_that_it_is_not_linear_in(fact: dict[str, Any]) -> None:
    def made() -> str:
        return applied(RULES[fact["rule"]], Trace(), [operand(word) for word in fact["operands"]], {}).state("tp")

    if fact["gives"] is None:
        with pytest.raises(Wrong):
            made()
    else:
        assert made() == fact["gives"]


# ---- who holds what ----------------------------------------------------------------------------------------------


@facts("parts")
def test_a_rank_holds_these_indices(fact: dict[str, Any]) -> None:
    factors = [(int(size), tuple(axes)) for size, *axes in (word.split("@") for word in str(fact["dim"]).split())]
    total = int(torch.tensor([size for size, _ in factors]).prod())
    place = Place(fact["mesh"], fact["at"])
    held = cut(torch.arange(total), ((tuple(factors),),), place)
    spans = (map(int, span.split(":")) for span in fact["holds"].split())
    assert held.tolist() == [n for start, end in spans for n in range(start, end)]


# ---- how often ranks speak ---------------------------------------------------------------------------------------


@cache
def gpt(layers: int) -> Written:
    return Written(lambda: Decoder([Block() for _ in range(layers)]))


def spoken(plan: Any, direction: str, axis: str = "tp") -> dict[str, int]:
    outside = [e for e in flat(plan["collectives"]) if e["op"] != "cross_entropy" and e["axis"] == axis]
    return dict(Counter(e[direction] for e in outside if e[direction]))


def times(text: Any, layers: int) -> int:
    each, _, rest = str(text).partition(" L + ")
    return int(each) * layers + int(rest) if rest else int(each)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("layers", [1, 3])
@facts("counts")
def test_a_step_speaks_so_often(fact: dict[str, Any], layers: int, ranks: int) -> None:
    rules = {"tp": TENSOR, "tp+sp": (*TENSOR, "seq tp"), "dp": ("batch dp",)}[fact["layout"]]
    plan = gpt(layers).compiled(layout({fact["layout"][:2]: ranks}, *rules)).plan
    for direction in ("forward", "backward"):
        assert spoken(plan, direction) == {kind: times(n, layers) for kind, n in fact[direction].items()}
    summed = [e["grad_sum"] for e in plan["parameters"].values()]
    assert summed.count(["tp"]) == times(fact["sums"], layers)
    assert summed.count(["dp"]) == (len(summed) if fact["layout"] == "dp" else 0), (
        "each parameter once, and all of them"
    )


def test_rows_tokens_and_heads_cut_at_once_are_the_union() -> None:
    """The loss is a sum still to be taken where rows and tokens are cut, and one value over tensor ranks."""
    build = gpt(1).holds(layout({"dp": 2, "cp": 2, "tp": 2}, "batch dp", *TENSOR, "seq cp"))
    for direction in ("forward", "backward"):
        assert spoken(build.plan, direction) == {"all_reduce": 3}
        assert spoken(build.plan, direction, "dp") == {}
    assert spoken(build.plan, "forward", "cp") == {"all_gather": 2, "all_reduce": 1}, "keys, values, and the loss"
    assert spoken(build.plan, "backward", "cp") == {"reduce_scatter": 2}
    (text,) = (line for line in build.files["model.py"].splitlines() if "vocab_cross_entropy(" in line)
    assert text.endswith("partial(dp, cp)")


class Frozen(nn.Module):
    """Two matrices whose input needs no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.tok = nn.Embedding(32, 32).requires_grad_(False)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, input_ids, labels):
        return F.cross_entropy(self.down(F.gelu(self.up(self.tok(input_ids)))).flatten(0, 1), labels.flatten())


def test_a_feed_forward_alone_sums_once_or_scatters_once_and_gathers_once() -> None:
    """As torch's own tests of its tensor parallel styles count; an input that every rank has needs no gather here."""
    model = Written(Frozen)
    names = {"names": {"up.weight": "d_ff d_model", "up.bias": "d_ff", "down.weight": "classes d_ff"}}
    whole_tokens = model.holds(layout({"tp": 2}, "d_ff tp", **names)).plan
    assert [spoken(whole_tokens, direction) for direction in ("forward", "backward")] == [{"all_reduce": 1}, {}]
    cut_tokens = model.holds(layout({"tp": 2}, "d_ff tp", "seq tp", **names)).plan
    assert spoken(cut_tokens, "forward") == {"reduce_scatter": 1, "all_reduce": 1}, "and the sum of the losses"
    assert spoken(cut_tokens, "backward") == {"all_gather": 1}


@pytest.mark.parametrize("name", ["glu_chunk", "glu_segments"])
def test_a_packed_matrix_is_taken_apart_without_a_word_between_ranks(name: str) -> None:
    plan = compiled(Small(name), "tp2").plan
    assert set(spoken(plan, "forward")) == set(spoken(plan, "backward")) == {"all_reduce"}


def test_attention_is_one_op_of_the_graph() -> None:
    ops = Counter(node.op for node in gpt(3).captured.graph.nodes)
    assert ops["sdpa"] == 1, "one for the three blocks, which are one loop"
    assert not {"softmax", "matmul"} & set(ops)


@pytest.mark.parametrize(
    ("rule", "code"), [("batch x", None), ("d_ff x", "not-divisible"), ("heads x", "not-divisible")]
)
def test_a_size_is_cut_evenly_or_not_at_all(rule: str, code: str | None) -> None:
    """Four heads and eighty hidden units by three; rows are as many as training chooses."""
    document = layout({"x": 3}, rule)
    if code is None:
        assert gpt(1).compiled(document).plan["inputs"][0]["cut"] == {"0": ["x"]}
        return
    with pytest.raises(GraphparError) as caught:
        gpt(1).compiled(document)
    assert {d.code for d in caught.value.diagnostics} == {code}


def test_a_hidden_layer_is_cut_by_rows_and_by_units() -> None:
    build = gpt(1).compiled(layout({"rows": 4, "model": 8}, "batch rows", "d_ff model"))
    assert "# batch@rows seq d_ff@model" in build.files["model.py"]


def test_an_axis_goes_to_the_first_rule_and_a_dimension_takes_a_second_axis() -> None:
    """As Flax reads rules, (heads, x) (seq, x) for one op; and (heads, z) multiplies, where Flax takes one axis."""
    build = gpt(1).compiled(layout({"x": 2, "z": 2}, "heads x", "seq x", "heads z", "d_ff z", "vocab z"))
    text = build.files["model.py"]
    assert "# batch heads@x+z seq d_head" in text and "# batch seq@x d_ff@z" in text


@facts("controls")
def test_a_mistake_that_a_comparison_must_see_is_a_mutant(fact: dict[str, Any]) -> None:
    assert set(fact["mutants"]) <= {mutant.name for mutant in MUTANTS if not mutant.equivalent}
