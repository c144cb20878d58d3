"""Zoo models compiled for specs: each model is captured once per process."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml
import zoo
from complete_reasons import assert_complete_reasons

from graphpar.capture.capture import Signature
from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec
from graphpar.verify.origin import Origin
from graphpar.verify.report import Report
from graphpar.verify.verify import Options, verify


@cache
def origin(name: str) -> Origin:
    """The model of the zoo; what is captured stays."""
    model = zoo.MODELS[name]
    return Origin(model.build, Signature(tuple(model.arguments), model.keywords()))


def parsed(document: Mapping[str, Any]) -> Spec:
    """A spec from what YAML would give."""
    return parse_spec(yaml.safe_dump(dict(document), sort_keys=False), "spec.yaml")


def compiled(name: str, document: Mapping[str, Any], folder: Path) -> Spec:
    """Write the build of a model for a spec into `folder`."""
    spec = parsed(document)
    compile_captured(origin(name).captured, spec, {"model": name, "spec_file": "spec.yaml"}).write(folder)
    return spec


def verified(name: str, document: Mapping[str, Any], folder: Path, options: Options) -> Report:
    """Compile and verify."""
    spec = compiled(name, document, folder)
    assert_complete_reasons(folder)
    return verify(folder, origin(name), spec, options)


def told(report: Report) -> str:
    """What failed, for an assertion's message."""
    lines = [f"{c.name}: {c.error} {c.detail}" for c in report.failures]
    return "\n".join([*lines, f"first: {report.first}"])
