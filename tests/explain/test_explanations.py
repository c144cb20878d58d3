"""What `graphpar explain` says: one collective of each kind, parameters, lines, modules, and two builds compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zoo
from click.testing import CliRunner
from explained_builds import EXPERTS, OTHERS, built, known

from graphpar.cli import main
from graphpar.explain.collectives import Collective

GOLDENS = Path(__file__).parent / "goldens"
BUILDS: dict[str, tuple[str, dict[str, Any]]] = {
    "tensor": ("llama_style", zoo.SPECS["tp2"]),
    "sequence": ("llama_style", zoo.SPECS["tp2+sp"]),
    "manual": ("nanogpt_manual", zoo.spec("dp2xtp2+sp", zoo.MODELS["nanogpt_manual"])),
    "two ways": ("nanogpt_manual", zoo.spec("tp2xd2", zoo.MODELS["nanogpt_manual"])),
    "experts": ("moe_plain", EXPERTS["ep2"]),
    **OTHERS,
}
KINDS: dict[str, tuple[str, Callable[[Collective], bool]]] = {
    "all_gather": ("sequence", lambda c: c.op == "all_gather"),
    "reduce_scatter": ("sequence", lambda c: c.op == "reduce_scatter" and bool(c.loops)),
    "all_reduce": ("tensor", lambda c: c.op == "all_reduce" and bool(c.loops)),
    "grad_all_reduce": ("tensor", lambda c: c.op == "grad_all_reduce"),
    "slice": ("manual", lambda c: c.op == "slice_"),
    "cross_entropy": ("tensor", lambda c: c.op == "cross_entropy"),
    "layer_norm": ("two ways", lambda c: c.op == "layer_norm"),
    "rms_norm": ("statistics", lambda c: c.op == "rms_norm"),
    "softmax": ("statistics", lambda c: c.op == "softmax"),
    "counts": ("experts", lambda c: c.op == "all_to_all" and not c.rows),
    "rows": ("experts", lambda c: c.op == "all_to_all" and bool(c.rows)),
    "send": ("stages", lambda c: c.op == "send"),
    "gradients": ("sequence", lambda c: c.op == "gradients"),
    "shared": ("tied stages", lambda c: c.op == "shared"),
    "again": ("run again", lambda c: c.op == "all_reduce" and bool(c.loops)),
    "region": ("region", lambda c: any(rule.region for rule in c.chain.rules)),
}
DONE: dict[str, Path] = {}


def explain(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["explain", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.output


@pytest.fixture
def build(tmp_path_factory) -> Callable[[str], Path]:
    """A build by its name among BUILDS, made once."""

    def make(name: str) -> Path:
        if name not in DONE:
            DONE[name] = built(*BUILDS[name], tmp_path_factory.mktemp("builds") / "build")
        return DONE[name]

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_a_collective_of_each_kind(kind, build, golden) -> None:
    name, wanted = KINDS[kind]
    chosen = next(c for c in known(build(name)).collectives if wanted(c))
    code, said = explain(build(name), str(chosen.number))
    assert code == 0
    golden(GOLDENS / f"{kind}.txt", said)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("sequence", "w2.weight"),
        ("sequence", "attention_norm.weight"),
        ("sequence", "feed_forward"),
        ("sequence", "llama_style.py:87"),
        ("stages", "w1.weight"),
    ],
)
def test_a_place(name, where, build, golden) -> None:
    code, said = explain(build(name), where)
    assert code == 0
    golden(GOLDENS / f"{name} {where.replace(':', ' ')}.txt", said.replace(str(build(name)), "BUILD"))


def test_the_list_has_every_collective(build, golden) -> None:
    code, said = explain(build("sequence"))
    assert code == 0
    golden(GOLDENS / "list.txt", said.replace(str(build("sequence")), "BUILD"))


def test_a_line_of_the_program_is_its_collective(build) -> None:
    folder = build("sequence")
    text = (folder / "model.py").read_text().splitlines()
    for one in known(folder).collectives:
        if one.op in ("all_gather", "reduce_scatter"):
            found = json.loads(explain(folder, str(one.number), "--json")[1])["collectives"][0]
            assert f"{one.op}(" in text[found["line"] - 1] and one.reason in text[found["line"] - 1]
            at_line = json.loads(explain(folder, f"model.py:{found['line']}", "--json")[1])["collectives"]
            assert one.number in [c["number"] for c in at_line]


def test_a_statement_without_a_collective_says_its_rule(build) -> None:
    folder = build("sequence")
    text = (folder / "model.py").read_text().splitlines()
    line = next(at for at, code in enumerate(text, 1) if "F.silu(" in code)
    (op,) = json.loads(explain(folder, f"model.py:{line}", "--json")[1])["ops"]
    assert op["cut"][0]["rule"]["text"] == "d_ff: tp" and op["runs"][0]["forward"] == 2


@pytest.mark.parametrize("where", ["all_gather", "all_gather/tp", "1", "wq", "layers.1.attention.wq.weight"])
def test_a_place_by_its_words(where, build) -> None:
    found = json.loads(explain(build("sequence"), where, "--json")[1])
    assert found["collectives"] or found["parameters"]


@pytest.mark.parametrize("where", ["0", "99", "all_gather/dp", "nothing.weight", "model.py:1", "layers.7.attention"])
def test_what_is_not_there_is_told(where, build) -> None:
    code, said = explain(build("sequence"), where)
    assert code == 2 and f"`{where}`" in said and "graphpar explain" in said


def test_sizes_are_those_that_are_given(build) -> None:
    once = json.loads(explain(build("sequence"), "1", "--json", "--batch", "2", "--seq", "8")[1])
    twice = json.loads(explain(build("sequence"), "1", "--json", "--batch", "4", "--seq", "8")[1])
    assert 2 * once["collectives"][0]["bytes"] == twice["collectives"][0]["bytes"] > 0


def test_an_edited_program_is_explained_without_lines(build, tmp_path) -> None:
    for file in ("plan.json", "spec.yaml"):
        (tmp_path / file).write_text((build("sequence") / file).read_text())
    (tmp_path / "model.py").write_text("class Transformer:\n    pass\n")
    code, said = explain(tmp_path, "1")
    assert code == 0 and "model.py is not the text of plan.json" in said and "spec.yaml:" in said


def test_a_build_does_not_differ_from_itself(build) -> None:
    assert explain(build("sequence"), "--diff", build("sequence")) == (0, "no difference\n")


def test_two_builds_differ_in_what_their_specs_say(build) -> None:
    found = json.loads(explain(build("tensor"), "--diff", build("sequence"), "--json")[1])["changes"]
    assert {"part": "the spec", "what": "seq: tp", "here": "", "there": "rule 4"} in found
    assert any(c["what"] == "forward reduce_scatter tp" and c["here"] == "" for c in found)
    assert any(c["what"] == "norm.weight" and "summed over tp" in c["there"] for c in found)
    assert not [c for c in found if c["part"] in ("the model", "the mesh")]


def test_a_place_in_two_builds_is_refused(build) -> None:
    code, said = explain(build("sequence"), "1", "--diff", build("tensor"))
    assert code == 2 and "--diff compares two" in said
