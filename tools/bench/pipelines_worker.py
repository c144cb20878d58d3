"""One rank of the measurement of pipelines; `python -m tools.bench.pipelines` starts it under torchrun."""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphpar.runtime import GradientSums, Mesh
from graphpar.runtime.loss import count_labels
from graphpar.runtime.pipeline import Pipeline, read_schedule
from tools.bench.builds import build_folder, read_build
from tools.bench.check import Right, check
from tools.bench.contenders import SEED, Batch, Contender, reference
from tools.bench.gpt import Sizes
from tools.bench.measure import summary, times
from tools.bench.staged import staged


def main(root: Path) -> None:
    """Measure what `settings.json` says and write `results.json`, both in `root`."""
    torch.set_num_threads(1)
    settings = json.loads((root / "settings.json").read_text())
    mesh = Mesh.from_env({"pp": settings["ranks"]})
    results = [measure(root, Sizes(width), settings, mesh) for width in settings["widths"]]
    if mesh.rank == 0:
        (root / "results.json").write_text(json.dumps(results))
    mesh.close()


def measure(root: Path, sizes: Sizes, settings: dict[str, Any], mesh: Mesh) -> dict[str, Any]:
    """Both programs at one width, with the same cut."""
    batch = Batch.random(sizes, settings["batch"])
    generated, cut = generated_stages(root, sizes, batch, mesh)
    programs = [generated, staged(sizes, batch, cut, settings["microbatches"])]
    check(programs, Right.of(reference(sizes), batch))
    samples = times({program.name: program.step for program in programs}, settings["rounds"])
    return {"layout": "pp", "width": sizes.width, **summary(samples, generated.name)}


def generated_stages(root: Path, sizes: Sizes, batch: Batch, mesh: Mesh) -> tuple[Contender, list[range]]:
    """What graphpar wrote, run as in its train.py, and the blocks of its stages."""
    folder = build_folder(root, "pp", sizes.width)
    model, plan = read_build(folder, mesh, SEED)
    assert plan.pipeline is not None
    pipeline = Pipeline(model, plan, mesh, read_schedule(folder / "schedule.csv"))
    parts = zip(batch.ids.chunk(pipeline.microbatches), batch.labels.chunk(pipeline.microbatches), strict=True)
    microbatches = [{"ids": ids, "labels": labels} for ids, labels in parts]
    parameters = dict(model.named_parameters())
    sums = GradientSums(model, mesh)

    def step() -> Tensor:
        for parameter in parameters.values():
            parameter.grad = None
        count = count_labels(model, microbatches, plan, mesh)
        loss = pipeline.step(microbatches, count)
        sums.finish()
        return loss.float()

    return Contender("graphpar", parameters, step, lambda _, full: full), [s.layers for s in plan.pipeline.stages]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
