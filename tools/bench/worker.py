"""One rank of the measurement; `python -m tools.bench` starts it under torchrun."""

import json
import sys
from pathlib import Path
from typing import Any

import torch

from graphpar.runtime import Mesh
from tools.bench import contenders
from tools.bench.check import Right, check
from tools.bench.contenders import Batch
from tools.bench.gpt import Sizes
from tools.bench.measure import summary, times


def main(root: Path) -> None:
    """Measure what `settings.json` says and write `results.json`, both in `root`."""
    torch.set_num_threads(1)
    settings = json.loads((root / "settings.json").read_text())
    tensor = Mesh.from_env({"tp": 2})
    data = Mesh({"dp": 2}, tensor.rank, tensor.device, lambda names, ranks: tensor["tp"].comm)  # the same group
    results: list[dict[str, Any]] = []
    for width in settings["widths"]:
        results.extend(measure(root, Sizes(width), settings, tensor, data))
    if tensor.rank == 0:
        (root / "results.json").write_text(json.dumps(results))
    tensor.close()


def measure(root: Path, sizes: Sizes, settings: dict[str, Any], tensor: Mesh, data: Mesh) -> list[dict[str, Any]]:
    """Both kinds of parallelism at one width."""
    batch = Batch.random(sizes, settings["batch"])
    split = [
        contenders.generated_tensor_parallel(root, sizes, batch, tensor),
        contenders.by_hand(sizes, batch),
        contenders.by_dtensor(sizes, batch),
    ]
    copied = [contenders.generated_data_parallel(root, sizes, batch, data), contenders.by_ddp(sizes, batch)]
    check([*split, *copied], Right.of(contenders.reference(sizes), batch))
    results: list[dict[str, Any]] = []
    for layout, programs in (("tp", split), ("dp", copied)):
        samples = times({program.name: program.step for program in programs}, settings["rounds"])
        results.append({"layout": layout, "width": sizes.width, **summary(samples, programs[0].name)})
        if tensor.rank == 0:
            print(f"{layout} {sizes.width}: {results[-1]['milliseconds']}", flush=True)
    return results


if __name__ == "__main__":
    main(Path(sys.argv[1]))
