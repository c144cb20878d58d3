"""The generated programs that are measured."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from graphpar.capture.capture import Signature, capture
from graphpar.compiler import compile_captured
from graphpar.language.parse import parse_spec
from graphpar.runtime import Mesh
from graphpar.runtime.initialise import initialise
from graphpar.runtime.plan import Plan, read_plan
from graphpar.runtime.tape import read_tape
from tools.bench.gpt import GPT, Sizes

SPECS = {
    "tp": "version: 1\nmesh: {tp: 2}\nlayout:\n  - heads: tp\n  - d_ff: tp\n  - vocab: tp\n",
    "dp": "version: 1\nmesh: {dp: 2}\nlayout:\n  - batch: dp\n",
}


def build_folder(root: Path, layout: str, width: int) -> Path:
    """Where a build lies."""
    return root / f"{layout}-{width}"


def pipeline_spec(ranks: int, microbatches: int) -> str:
    """A stage on each rank, in 1f1b."""
    pipeline = f"{{axis: pp, schedule: 1f1b, microbatches: {microbatches}}}"
    return f"version: 1\nmesh: {{pp: {ranks}}}\nlayout: []\npipeline: {pipeline}\n"


def write_builds(root: Path, sizes: Sizes, specs: Mapping[str, str] = SPECS) -> None:
    """Compile the GPT of these sizes for every spec."""
    compile_all(root, lambda: GPT(sizes), sizes.width, specs)


def compile_all(root: Path, construct: Callable[[], nn.Module], width: int, specs: Mapping[str, str]) -> None:
    """Compile a model of ids and labels for every spec, with graphpar as it is."""
    captured = capture(construct, Signature(("ids", "labels"), {}))
    for layout, text in specs.items():
        spec = parse_spec(text, f"{layout}.yaml")
        build = compile_captured(captured, spec, {"model": "model.py", "spec_file": f"{layout}.yaml"})
        build.write(build_folder(root, layout, width))


def read_build(folder: Path, mesh: Mesh, seed: int, kind: str = "GPT") -> tuple[Any, Plan]:
    """The generated model of this class, with the values of the source model for this seed, as train.py makes it."""
    name = folder.name.replace("-", "_")
    found = importlib.util.spec_from_file_location(name, folder / "model.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    plan = read_plan(folder / "plan.json")
    model = getattr(module, kind)(mesh)
    initialise(model, plan, read_tape(folder / "init.json"), seed, mesh)
    return model, plan
