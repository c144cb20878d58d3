"""Experts on several ranks change no result: families of the library and two files under layouts with `moe`.

`GRAPHPAR_EXPERTS=all` runs every model under every layout.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from complete_reasons import assert_complete_reasons

from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.sources.door import open_model
from graphpar.verify.origin import Origin
from graphpar.verify.verify import Options, verify
from tools.ops.families import FAMILIES, SIZES

LIBRARY = ("mixtral", "qwen3_moe", "olmoe", "deepseek_v3", "gpt_oss")
FILES = {"moe_plain": "tiny", "moe_gshard": "small"}
TENSOR = [{"heads": "tp"}, {"d_ff": "tp"}, {"vocab": "tp"}]


def spec(mesh: dict[str, Any], layout: list[dict[str, Any]], experts: str = "ep", **moe: Any) -> dict[str, Any]:
    return {"version": 1, "mesh": mesh, "layout": layout, "moe": {"experts": experts, **moe}}


STAGES = {"axis": "pp", "schedule": "1f1b", "microbatches": 1}  # a loss that balances experts is one of a whole batch
LAYOUTS: dict[str, dict[str, Any]] = {
    "ep2": spec({"ep": 2}, [{"batch": "ep"}]),
    "ep4": spec({"ep": 4}, [{"batch": "ep"}]),
    "ep2xdp2": spec({"dp": 2, "ep": 2}, [{"batch": ["dp", "ep"]}]),
    "ep=dp": spec({"dp": 2, "aliases": {"ep": "dp"}}, [{"batch": "dp"}]),
    "ep2xtp2": spec({"ep": 2, "tp": 2}, [{"batch": "ep"}, *TENSOR]),
    "ep2xtp2+sp": spec({"ep": 2, "tp": 2}, [{"batch": "ep"}, *TENSOR, {"seq": "tp"}]),
    "pp2xep2": spec({"pp": 2, "ep": 2}, [{"batch": "ep"}]) | {"pipeline": STAGES},
    "the same tokens": spec({"ep": 2}, []),
    "gathered tokens": spec({"ep": 2}, [{"batch": "ep"}], dispatch="allgather"),
}
SOME = {
    ("mixtral", "ep2"),
    ("mixtral", "ep2xtp2+sp"),
    ("mixtral", "the same tokens"),
    ("mixtral", "gathered tokens"),
    ("qwen3_moe", "ep2xdp2"),
    ("olmoe", "ep=dp"),
    ("deepseek_v3", "ep4"),
    ("deepseek_v3", "ep2xtp2+sp"),
    ("gpt_oss", "ep2xtp2"),
    ("gpt_oss", "pp2xep2"),
    ("moe_plain", "ep2"),
    ("moe_plain", "pp2xep2"),
    ("moe_gshard", "ep2xtp2+sp"),
    ("moe_gshard", "ep=dp"),
}


@cache
def origin(name: str, folder: Path) -> Origin:
    if name in FILES:
        path = str(Path(__file__).parent / "models" / f"{name}.py:{FILES[name]}")
    else:
        (folder / name).mkdir()
        config = SIZES | dict(FAMILIES[name]) | {"model_type": name, "pad_token_id": 0}
        (folder / name / "config.json").write_text(json.dumps(config))
        path = str(folder / name)
    source = open_model(path, None)
    return Origin(source.construct, source.signature)


@pytest.fixture(scope="session")
def configs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("configs")


def cases() -> list[Any]:
    every = [(m, layout) for m in (*LIBRARY, *FILES) for layout in LAYOUTS]
    chosen = every if os.environ.get("GRAPHPAR_EXPERTS") == "all" else [c for c in every if c in SOME]
    return [pytest.param(*c, id="-".join(c), marks=pytest.mark.xdist_group(c[0])) for c in chosen]


def document(name: str, layout: str) -> dict[str, Any]:
    """The layout in the words of the model: where heads stand in groups, it is groups that are cut."""
    found = LAYOUTS[layout]
    grouped = name in LIBRARY and name != "deepseek_v3"
    rules = [{"kv_heads": "tp"} if grouped and rule == {"heads": "tp"} else rule for rule in found["layout"]]
    return found | {"layout": rules}


def compiled(name: str, layout: str, configs: Path, folder: Path) -> tuple[Origin, Any]:
    found = parse_spec(yaml.safe_dump(document(name, layout), sort_keys=False), "spec.yaml")
    source = origin(name, configs)
    compile_captured(source.captured, found, {"model": name, "spec_file": "spec.yaml"}).write(folder)
    return source, found


@pytest.mark.parametrize(("model", "layout"), cases())
def test_experts_on_several_ranks_change_no_result(model: str, layout: str, configs: Path, tmp_path: Path) -> None:
    source, found = compiled(model, layout, configs, tmp_path)
    assert_complete_reasons(tmp_path)
    report = verify(tmp_path, source, found, Options(length=12))
    assert report.passed, report.failures


@pytest.mark.parametrize(("factor", "group"), [(0.5, None), (1.0, "batch"), (1.25, "batch"), (2.0, None)])
def test_with_a_capacity_the_same_tokens_survive_as_on_one_device(factor, group, configs: Path, tmp_path: Path) -> None:
    limit = {"tokens": "capacity", "capacity_factor": factor} | ({"group": group} if group else {})
    found = parse_spec(yaml.safe_dump(spec({"ep": 2}, [{"batch": "ep"}], **limit)), "spec.yaml")
    source = origin("moe_plain", configs)
    compile_captured(source.captured, found, {"model": "moe_plain", "spec_file": "spec.yaml"}).write(tmp_path)
    report = verify(tmp_path, source, found, Options(length=24))
    assert report.passed, report.failures


def test_tokens_change_hands_twice_forward_and_twice_backward(configs: Path, tmp_path: Path) -> None:
    compiled("moe_plain", "ep2", configs, tmp_path)
    entries = json.loads((tmp_path / "plan.json").read_text())["collectives"]
    routed = [e for e in entries if e.get("routed")]
    counts = [e for e in entries if e["forward"] == "all_to_all" and not e.get("routed")]
    layers = 2
    assert [(e["forward"], e["backward"]) for e in routed] == [("all_to_all", "all_to_all")] * 2 * layers
    assert [(e["backward"], e["dtype"], e["forward_elements"]) for e in counts] == [(None, "int64", "8")] * layers
    assert not any("gather" in str(e["forward"]) for e in entries)


def test_gradients_of_experts_are_complete_and_those_of_the_router_are_summed(configs: Path, tmp_path: Path) -> None:
    compiled("moe_plain", "ep2xdp2", configs, tmp_path)
    parameters = json.loads((tmp_path / "plan.json").read_text())["parameters"]
    assert parameters["blocks.1.ffn.w_in"]["grad_sum"] == ["dp"]
    assert parameters["blocks.1.ffn.w_in"]["sharded"] == ["ep"]
    assert parameters["blocks.1.ffn.router.weight"]["grad_sum"] == ["dp", "ep"]
