"""`python -m tools.bench.pipelines`: a generated pipeline next to one by hand, on 2 and on 4 ranks."""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tools.bench.builds import pipeline_spec, write_builds
from tools.bench.documents import measure_all
from tools.bench.gpt import Sizes
from tools.bench.launch import launched
from tools.bench.report import show


def main() -> None:
    """Exit status 1 if a rank fails, as it does when the programs compute different things."""
    sizes = {"layers": Sizes.layers, "length": Sizes.length, "vocab": Sizes.vocab}
    measure_all(read_arguments(), ("widths", "batch", "microbatches", "rounds"), sizes, measure, show)


def read_arguments() -> argparse.Namespace:
    """The settings of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.pipelines", description="graphpar's pipelines")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4], help="at most one a layer")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512], help="multiples of 128")
    parser.add_argument("--batch", type=int, default=16, help="rows of the whole batch")
    parser.add_argument("--microbatches", type=int, default=8, help="a divisor of the batch, at least the ranks")
    parser.add_argument("--rounds", type=int, default=40, help="how often each program is timed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def measure(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Compile for every width, and run the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        specs = {"pp": pipeline_spec(settings["ranks"], settings["microbatches"])}
        for width in settings["widths"]:
            write_builds(root, Sizes(width), specs)
        return launched("pipelines_worker", root, settings, settings["ranks"])


if __name__ == "__main__":
    main()
