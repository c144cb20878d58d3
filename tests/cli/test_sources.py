"""What stands for a model, and what is made of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cli_run import MODELS
from zoo import MODELS as ZOO

from graphpar.capture.capture import Signature, capture
from graphpar.errors import GraphparError
from graphpar.explain.memory import spell
from graphpar.language.schema import ModelSpec
from graphpar.sources.coverage import assumed
from graphpar.sources.door import open_model, reopen


def test_the_only_class_of_a_file_is_the_model():
    source = open_model(str(MODELS / "fine.py"))
    assert (source.title, source.signature.inputs) == ("fine.py:Model", ("idx", "targets"))
    assert len(source.said) == 1


def test_a_function_makes_the_model_if_no_class_can_be_built_alone():
    source = open_model(str(MODELS / "factory.py"))
    assert source.object == "build"
    assert source.construct().embed.weight.shape == (97, 24)


def test_arguments_of_the_spec_reach_the_constructor():
    source = open_model(str(MODELS / "factory.py"), ModelSpec(object="Model", args={"width": 12}))
    assert source.construct().embed.weight.shape == (97, 12)


def test_a_module_is_imported_from_the_working_directory(monkeypatch):
    monkeypatch.chdir(MODELS.parent)
    monkeypatch.syspath_prepend(MODELS)  # its neighbour
    source = open_model("models.fine:Model")
    assert (source.kind, source.title) == ("import", "models.fine:Model")


@pytest.mark.parametrize("name", ["llama_style", "fused_gate_up"])
def test_the_token_ids_come_first_and_the_labels_last(name):
    assert open_model(ZOO[name].write(Path())).signature.inputs == ZOO[name].arguments


# ---- the same model again


@pytest.mark.parametrize("name", ["models/fine.py:Model", "models.fine:Model"])
def test_a_model_is_found_again_from_where_its_build_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(MODELS.parent)
    monkeypatch.syspath_prepend(MODELS)
    source = open_model(name)
    monkeypatch.chdir(tmp_path)
    again = reopen(source.record(tmp_path / "build"), tmp_path / "build")
    assert (again.object, again.signature) == (source.object, source.signature)


def test_a_model_that_changed_is_not_the_same(tmp_path):
    file = tmp_path / "changing.py"
    file.write_text((MODELS / "fine.py").read_text())
    record = open_model(str(file)).record(tmp_path / "build")
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(GraphparError) as caught:
        reopen(record, tmp_path / "build")
    assert caught.value.diagnostics[0].code == "source-changed"
    assert caught.value.exit_code == 1


# ---- the transformers library


def folder(tmp_path: Path, name: str = "llama_gqa", **more: object) -> str:
    path = Path(ZOO[name].write(tmp_path))
    (path / "config.json").write_text(json.dumps({**ZOO[name].config, **more}))
    return str(path)


def test_a_config_gives_a_model_that_is_trained_on_labels(tmp_path):
    source = open_model(folder(tmp_path))
    assert source.signature.inputs == ("input_ids", "labels")
    assert any("use_cache is off" in text for text in source.said)
    graph = capture(source.construct, source.signature).graph
    assert set(graph.tensors) >= set(dict(ZOO["llama_gqa"].build().named_parameters()))


def test_the_class_that_a_config_names_is_built(tmp_path):
    source = open_model(folder(tmp_path, architectures=["LlamaForCausalLM"]))
    assert source.object == "LlamaForCausalLM"
    assert not any("the model is" in text for text in source.said)


def test_a_class_without_labels_is_replaced_and_that_is_said(tmp_path):
    source = open_model(folder(tmp_path, architectures=["LlamaModel"]))
    assert source.object == "LlamaForCausalLM"
    assert any("LlamaModel takes no labels" in text for text in source.said)


def test_arguments_of_the_spec_replace_entries_of_the_config(tmp_path):
    source = open_model(folder(tmp_path), ModelSpec(args={"num_hidden_layers": 1}))
    assert len(source.construct().model.layers) == 1
    with pytest.raises(GraphparError, match=r"no `num_hidden_layer`; did you mean `num_hidden_layers`"):
        open_model(folder(tmp_path / "b"), ModelSpec(args={"num_hidden_layer": 1}))


def test_parameters_narrower_than_float32_are_said(tmp_path):
    assert any("bfloat16" in text for text in open_model(folder(tmp_path, dtype="bfloat16")).said)


MIXTURE = {"model_type": "mixtral", "num_local_experts": 4, "num_key_value_heads": 2, "num_attention_heads": 4}


def test_how_experts_are_computed_is_chosen_and_said(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MIXTURE | {"hidden_size": 32, "num_hidden_layers": 1}))
    source = open_model(str(tmp_path))
    assert "experts are computed by grouped_mm: all of them in one product of groups of rows" in source.said


def test_experts_in_a_loop_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MIXTURE | {"experts_implementation": "eager"}))
    with pytest.raises(GraphparError) as caught:
        open_model(str(tmp_path))
    (found,) = caught.value.diagnostics
    assert "`eager`" in found.message and "grouped_mm" in (found.fix or "")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "is not JSON"),
        ('{"hidden_size": 3}', "has no `model_type`"),
        ('{"model_type": "lama"}', "knows no model type `lama`"),
        ('{"model_type": "llama", "auto_map": {"AutoConfig": "x.Y"}}', "asks for code of its own"),
        ('{"model_type": "llama", "architectures": ["LlamaModel"], "hidden_size": "x"}', "transformers refuses"),
    ],
)
def test_a_config_that_is_none(tmp_path, config, message):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(GraphparError, match=message):
        open_model(str(tmp_path))


def test_without_the_library_a_folder_says_what_to_install(tmp_path, monkeypatch):
    path = folder(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(GraphparError) as caught:
        open_model(path)
    assert caught.value.diagnostics[0].fix == "pip install 'graphpar[hf]'"


# ---- what is said


def test_only_what_binds_is_said_of_the_length():
    model = ZOO["nanogpt"]
    captured = capture(model.build, Signature(tuple(model.arguments), model.keywords()))
    assert all(" != " not in text and " >= " not in text for text in assumed(captured))


@pytest.mark.parametrize(
    ("size", "text"),
    [(1010 * 1024, "0.986 MiB"), (999 * 1024, "999 KiB"), (12, "12 B"), (1023 << 30, "0.999 TiB")],
)
def test_no_size_is_said_in_powers_of_ten(size, text):
    assert spell(size) == text
