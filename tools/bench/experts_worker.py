"""One rank of the measurement of expert parallelism; `python -m tools.bench.experts` starts it under torchrun."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from graphpar.runtime import Mesh
from tools.bench import mixtures
from tools.bench.check import Right, check
from tools.bench.contenders import Batch
from tools.bench.measure import ratio, times
from tools.bench.mixtures import Trained
from tools.bench.moe import MixtureSizes
from tools.bench.moved import check_moved

SHORT = 8  # tokens of a sequence that one device computes: its model copies the experts' matrices for every token


def main(root: Path) -> None:
    """Measure what `settings.json` says and write `results.json`, both in `root`."""
    torch.set_num_threads(1)
    settings = json.loads((root / "settings.json").read_text())
    ranks = settings["ranks"]
    experts = Mesh.from_env({"ep": ranks})
    data = Mesh({"dp": ranks}, experts.rank, experts.device, lambda names, lines: experts["ep"].comm)  # the same group
    results: list[dict[str, Any]] = []
    for width in settings["widths"]:
        results.append(measure(root, MixtureSizes(width), settings, experts, data))
        if experts.rank == 0:
            print(f"{width}: {results[-1]['milliseconds']}", flush=True)
    if experts.rank == 0:
        (root / "results.json").write_text(json.dumps(results))
    experts.close()


def measure(root: Path, sizes: MixtureSizes, settings: dict[str, Any], experts: Mesh, data: Mesh) -> dict[str, Any]:
    """All programs at one width."""
    ranks = settings["ranks"]

    def programs(batch: Batch) -> list[Trained]:
        return [
            mixtures.generated("graphpar", root, "ep", sizes, batch, experts),
            mixtures.by_hand(sizes, batch),
            mixtures.generated("data parallel", root, "dp", sizes, batch, data),
        ]

    batch = Batch.random(sizes, settings["batch"])
    moved = check_moved(root, sizes, batch, ranks)
    short = Batch(batch.ids[:ranks, :SHORT], batch.labels[:ranks, :SHORT])
    check([program.contender for program in programs(short)], Right.of(mixtures.reference(sizes), short))
    *split, copied = programs(batch)
    check([program.contender for program in split], Right.by(copied.contender))
    steps = {program.name: program.contender.step for program in (*split, copied)}
    passes = {_passes(program.name): program.passes for program in split}
    return {"width": sizes.width, "moved": moved, **summary(times({**steps, **passes}, settings["rounds"]), batch)}


def _passes(name: str) -> str:
    return f"{name}, forward and backward"


def summary(samples: Mapping[str, Sequence[float]], batch: Batch) -> dict[str, Any]:
    """Medians, and the ratios of tokens per second of graphpar to others."""
    tokens = batch.ids.numel()
    rates = {name: [tokens / s for s in seconds] for name, seconds in samples.items()}
    pairs = [("graphpar", "by hand"), ("graphpar", "data parallel"), (_passes("graphpar"), _passes("by hand"))]
    return {
        "milliseconds": {name: round(1e3 * median(seconds), 3) for name, seconds in samples.items()},
        "tokens_per_second": {name: round(median(rate)) for name, rate in rates.items()},
        "ratios": [asdict(ratio(rates, of, to)) for of, to in pairs],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
