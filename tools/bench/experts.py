"""`python -m tools.bench.experts`: generated expert parallelism next to that by hand, on 2 and on 4 ranks."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tools.bench.builds import compile_all
from tools.bench.documents import measure_all
from tools.bench.launch import launched
from tools.bench.mixtures import specs
from tools.bench.moe import Mixture, MixtureSizes
from tools.bench.report import show_experts


def main() -> None:
    """Exit status 1 if a rank fails: if programs compute different things, or move other elements than they should."""
    sizes = {"length": MixtureSizes.length, "experts": MixtureSizes.experts, "topk": MixtureSizes.topk}
    measure_all(read_arguments(), ("widths", "batch", "rounds"), sizes, measure, show_experts)


def read_arguments() -> argparse.Namespace:
    """The settings of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.experts", description="graphpar's mixtures of experts")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="divisors of the number of experts")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512], help="of the model")
    parser.add_argument("--batch", type=int, default=16, help="rows of the whole batch, a multiple of the ranks")
    parser.add_argument("--rounds", type=int, default=40, help="how often each program is timed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def measure(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Compile for every width, and run the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for width in settings["widths"]:
            compile_all(root, lambda width=width: Mixture(MixtureSizes(width)), width, specs(settings["ranks"]))
        return launched("experts_worker", root, settings, settings["ranks"])


if __name__ == "__main__":
    main()
