"""Decoder families of the transformers library beyond the zoo: each is compiled, cut and proven from its text.

What the zoo proves by running, this shows for what else people train: their code is captured as it is, every op has its
rule, and the program's states follow from its text.
"""

from __future__ import annotations

import pytest
import yaml

from graphpar.check.check import check_program
from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from tools.ops.families import captured

CUT = (
    "apertus arcee biogpt bitnet codegen cohere cohere2 ernie4_5 exaone4 gemma gemma3_text gpt_bigcode gpt_neo "
    "gptj granite helium hunyuan_v1_dense ministral mpt nemotron olmo olmo2 olmo3 persimmon phi seed_oss stablelm "
    "starcoder2"
).split()
DATA = ["bloom", "falcon"]  # heads or d_ff are not found: data parallel alone
TENSOR = [{"batch": "dp"}, {"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]


@pytest.mark.parametrize("family", [*CUT, *DATA])
def test_a_family_is_cut_and_proven(family: str) -> None:
    layout = TENSOR[:1] if family in DATA else TENSOR
    document = {"version": 1, "mesh": {"dp": 2, "tp": 2}, "layout": layout}
    spec = parse_spec(yaml.safe_dump(document, sort_keys=False), "spec.yaml")
    build = compile_captured(captured(family), spec, {"model": family, "spec_file": "spec.yaml"})
    assert check_program(build.files["model.py"], build.plan) == []
    assert any(p["sharded"] for p in build.plan["parameters"].values()) == (family in CUT)
