"""The zoo keeps its own promises: each model builds, trains, exports, and has the parameters its table names."""

import re
from itertools import pairwise

import pytest
import torch
from torch.export import Dim
from zoo import MODELS, SPECS, Model, spec, starred

every_model = pytest.mark.parametrize("model", MODELS.values(), ids=list(MODELS))


def product(text: str, sizes: dict[str, int]) -> int:
    result = 1
    for word in text.split():
        result *= int(word) if word.isdigit() else sizes[word]
    return result


def shape(axes: str, sizes: dict[str, int]) -> tuple[int, ...]:
    """`vocab (3 heads d_head)` -> (97, 192): written here on its own, so as not to trust the code under test."""
    words = re.findall(r"\([^)]*\)|\S+", axes)
    return tuple(sum(product(segment, sizes) for segment in word.strip("()").split("+")) for word in words)


@every_model
def test_the_axes_name_every_parameter_and_fit_its_shape(model: Model) -> None:
    found = {name: tuple(p.shape) for name, p in model.build().named_parameters()}
    assert {starred(name) for name in found} == set(model.axes)
    assert found == {name: shape(model.axes_of(name), dict(model.sizes)) for name in found}


@every_model
def test_tied_names_are_one_tensor_and_no_others_are(model: Model) -> None:
    parameters = dict(model.build().named_parameters(remove_duplicate=False))
    for alias, name in model.tied.items():
        assert parameters[alias] is parameters[name]
    assert len({id(p) for p in parameters.values()}) == len(parameters) - len(model.tied)


@every_model
def test_a_step_gives_every_parameter_a_gradient(model: Model) -> None:
    torch.manual_seed(0)
    module = model.build()
    loss = model.loss(module(**model.batch(), **model.keywords()))
    assert loss.ndim == 0 and torch.isfinite(loss)
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in module.parameters())


@every_model
def test_it_exports_as_it_trains_with_any_batch_and_length(model: Model) -> None:
    torch.manual_seed(0)
    module = model.build()
    batch = model.batch()
    dynamic = {key: {0: Dim.AUTO, 1: Dim.AUTO} for key in batch} | dict.fromkeys(model.keywords())
    program = torch.export.export(module, (), batch | model.keywords(), dynamic_shapes=dynamic)
    places = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    sizes = places[model.arguments[0]].shape
    assert all(isinstance(size, torch.SymInt) for size in sizes), "batch or seq became a constant"


@every_model
def test_a_shorter_smaller_batch_runs_too(model: Model) -> None:
    batch = {name: tensor[:2, :8].contiguous() for name, tensor in model.batch().items()}
    assert torch.isfinite(model.loss(model.build()(**batch, **model.keywords())))


@every_model
def test_legal_specs_are_those_whose_dimensions_exist_and_divide(model: Model) -> None:
    sizes = dict(model.sizes) | {"batch": model.rows, "seq": model.length}
    # `heads` of grouped queries are cut by groups first
    sizes.setdefault("heads", sizes.get("kv_heads", 0))

    def fits(name: str) -> bool:
        document = spec(name, model)
        for rule in document["layout"]:
            ((dimension, target),) = rule.items()
            ranks = 1
            for axis in [target] if isinstance(target, str) else target:
                ranks *= document["mesh"][axis]
            padded = document.get("uneven", {}).get(dimension) == "pad"
            if not padded and (not sizes.get(dimension) or sizes[dimension] % ranks):
                return False
        return True

    assert set(model.legal) == {name for name in SPECS if fits(name)}


@every_model
def test_labels_are_unevenly_ignored(model: Model) -> None:
    ids, labels = model.batch().values()
    counts = (labels != model.ignore).sum(dim=1).tolist()
    assert all(a > b > 0 for a, b in pairwise(counts))
    assert ids.data_ptr() != labels.data_ptr()


def test_a_written_model_is_the_same_model(tmp_path) -> None:
    from transformers import AutoConfig

    for model in MODELS.values():
        argument = model.write(tmp_path)
        if model.file is None:
            written = AutoConfig.from_pretrained(argument).to_dict()
            assert {key: written[key] for key in model.config if key in written} == {
                key: value for key, value in model.config.items() if key in written
            }
