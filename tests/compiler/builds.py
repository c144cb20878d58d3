"""What the tests of the compiler compile: models of the zoo and the small ones beside this file, each captured once.

build = compiled(MODELS["gpt2"], "tp2")     # a spec of the zoo by name, or a spec as a dict
build.plan, build.files["model.py"]
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml
import zoo
from compiled_zoo import origin
from torch import Tensor, nn

from graphpar.capture.capture import Captured, Signature, capture
from graphpar.compiler import Build, compile_captured
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec

SMALL = Path(__file__).parent / "models"
sys.path.insert(0, str(SMALL))  # they share `parts.py`
logging.getLogger("transformers").setLevel(logging.ERROR)


@dataclass(frozen=True)
class Small:
    """A model of `models/`: a file with a factory `model()`, called as (input_ids, labels) -> loss, vocabulary 32."""

    name: str
    arguments = ("input_ids", "labels")
    rows = 4
    length = 12

    def build(self) -> nn.Module:
        """The module with random weights, in training mode."""
        return load(SMALL / f"{self.name}.py").model().train()

    def batch(self, seed: int = 0) -> dict[str, Tensor]:
        """Ids and labels of 4 rows of 12 tokens, the labels unevenly ignored."""
        random = torch.Generator().manual_seed(seed)
        ids, labels = torch.randint(32, (2, self.rows, self.length), generator=random)
        for row in range(1, self.rows):
            labels[row, self.length - 2 * row :] = -100
        return {"input_ids": ids, "labels": labels}

    def keywords(self) -> dict[str, Any]:
        """What `forward` is called with besides a batch."""
        return {}

    def loss(self, output: Any) -> Tensor:
        """The loss in what `forward` returned."""
        return output


Model = zoo.Model | Small


def load(path: Path) -> ModuleType:
    """A file as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def captured(model: Model) -> Captured:
    """The model's graph, captured once per process."""
    return _small(model.name) if isinstance(model, Small) else origin(model.name).captured


@cache
def _small(name: str) -> Captured:
    model = Small(name)
    return capture(model.build, Signature(model.arguments, model.keywords()))


ONES: dict[str, Any] = {"version": 1, "mesh": {"dp": 1}, "layout": [{"batch": "dp"}]}  # every model has a batch


def spec_of(model: Model, spec: str | Mapping[str, Any]) -> Spec:
    """A spec of the zoo by name, or a document, as the compiler wants it."""
    if isinstance(spec, str):
        spec = zoo.spec(spec, model) if isinstance(model, zoo.Model) else zoo.SPECS[spec]
    return parse_spec(yaml.safe_dump(dict(spec), sort_keys=False), "spec.yaml")


def compiled(model: Model, spec: str | Mapping[str, Any]) -> Build:
    """The build of a model for a spec; raises GraphparError."""
    if isinstance(spec, str):
        return _compiled(model.name, isinstance(model, Small), spec)
    return compile_captured(captured(model), spec_of(model, spec), source(model))


@cache
def _compiled(name: str, small: bool, spec: str) -> Build:
    model = Small(name) if small else zoo.MODELS[name]
    document = ONES if spec == "ones" else spec
    return compile_captured(captured(model), spec_of(model, document), source(model))


def source(model: Model) -> dict[str, Any]:
    """What a build says of where it comes from."""
    return {"model": model.name, "spec_file": "spec.yaml"}


def layout(mesh: Mapping[str, int], *rules: str, **rest: Any) -> dict[str, Any]:
    """`layout({"tp": 2}, "heads tp", "vocab tp")` as a spec."""
    pairs: Sequence[list[str]] = [rule.split() for rule in rules]
    listed = [{name: axes[0] if len(axes) == 1 else axes} for name, *axes in pairs]
    return {"version": 1, "mesh": dict(mesh), "layout": listed, **rest}
