"""Decoder families of the transformers library beyond the zoo: each is compiled, cut and proven from its text.

What the zoo proves by running, this shows for what else people train: their code is captured as it is, every op has its
rule, and the program's states follow from its text.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import yaml

from graphpar.builds.make import make
from graphpar.builds.specs import read_spec
from graphpar.check.check import check_program
from graphpar.compiler import compile_captured, simplify
from graphpar.ir.axes import spell_all
from graphpar.language.parse import parse_spec
from graphpar.names.named import name
from graphpar.sources.door import reopen
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify
from tools.ops.families import FAMILIES, SIZES
from tools.ops.families import captured as capture

captured = cache(capture)

CUT = (
    "apertus arcee biogpt bitnet codegen cohere cohere2 ernie4_5 exaone4 gemma gemma3_text gpt_bigcode gpt_neo "
    "gptj granite helium hunyuan_v1_dense ministral mpt nemotron olmo olmo2 olmo3 persimmon phi seed_oss stablelm "
    "starcoder2"
).split()
EXPERTS = ["deepseek_v3", "gpt_oss", "mixtral", "olmoe", "qwen3_moe"]
DATA = ["bloom", "falcon", *EXPERTS]  # heads or d_ff are not found, or experts are cut otherwise: data parallel alone
TENSOR = [{"batch": "dp"}, {"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]


@pytest.mark.parametrize("family", [*CUT, *DATA])
def test_a_family_is_cut_and_proven(family: str) -> None:
    layout = TENSOR[:1] if family in DATA else TENSOR
    document = {"version": 1, "mesh": {"dp": 2, "tp": 2}, "layout": layout}
    spec = parse_spec(yaml.safe_dump(document, sort_keys=False), "spec.yaml")
    build = compile_captured(captured(family), spec, {"model": family, "spec_file": "spec.yaml"})
    assert check_program(build.files["model.py"], build.plan) == []
    assert any(p["sharded"] for p in build.plan["parameters"].values()) == (family in CUT)


@pytest.mark.parametrize("family", EXPERTS)
def test_experts_and_what_is_wide_inside_of_them_are_found(family: str) -> None:
    named = name(simplify(captured(family).graph))
    assert named.unknown == ()
    found = {n.attrs["name"].rpartition("mlp.")[2]: spell_all(n.named) for n in named.graph if n.op == "parameter"}
    scored = "(expert_groups group_experts)" if family == "deepseek_v3" else "experts"
    turned = family == "gpt_oss"
    assert found["experts.gate_up_proj"] == ("experts d_model (d_ff 2)" if turned else "experts (2 d_ff) d_model")
    assert found["experts.down_proj"] == f"experts {'d_ff d_model' if turned else 'd_model d_ff'}"
    assert found["router.weight" if turned else "gate.weight"] == f"{scored} d_model"
    assert named.sizes()["experts"] == 8 and named.sizes()["topk"] == 2
    if family == "deepseek_v3":
        assert found["shared_experts.up_proj.weight"] == "d_ff d_model"


@pytest.mark.parametrize("family", ["mixtral", "olmoe", "qwen3_moe"])
def test_the_loss_of_balance_has_the_scores_of_every_layer(family: str) -> None:
    graph = simplify(captured(family).graph)
    (loss,) = graph.outputs
    kept = {n for n in graph if n.op == "softmax" and n.origin.module == ""}
    gates = {a.attrs["name"] for s in kept for a in s.operands[0].operands if a.op == "parameter"}
    assert loss.shape == () and len(gates) == SIZES["num_hidden_layers"] == len(kept)


@pytest.mark.parametrize(("family", "ranks"), [*((family, 1) for family in EXPERTS), ("mixtral", 2)])
def test_a_build_of_a_config_computes_what_the_library_does(family: str, ranks: int, tmp_path: Path) -> None:
    config = SIZES | dict(FAMILIES[family]) | {"model_type": family, "pad_token_id": 0}
    (tmp_path / family).mkdir()
    (tmp_path / family / "config.json").write_text(json.dumps(config))
    (tmp_path / "spec.yaml").write_text(f"version: 1\nmesh: {{dp: {ranks}}}\nlayout:\n  - batch: dp\n")
    make(str(tmp_path / family), str(tmp_path / "spec.yaml"), tmp_path / "build")
    document = json.loads((tmp_path / "build" / "plan.json").read_text())
    spec = read_spec(str(tmp_path / "spec.yaml"))
    source = reopen(document["source"], tmp_path / "build", spec.model)
    assert any("grouped_mm" in line for line in source.said)
    report = verify(tmp_path / "build", Origin(source.construct, source.signature), spec, Options(length=8))
    assert report.passed, report.failures
    assert any(check.name == "captured program in float64" for check in report.checks)
