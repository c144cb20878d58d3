"""`python -m tools.bench`: compile, launch two ranks, print a table, write JSON."""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from tools.bench.builds import write_builds
from tools.bench.gpt import Sizes
from tools.bench.launch import launched
from tools.bench.report import machine, show

RANKS = 2


def main() -> None:
    """Exit status 1 if a rank fails, as it does when two programs compute different things."""
    arguments = read_arguments()
    settings = {"widths": arguments.widths, "batch": arguments.batch, "rounds": arguments.rounds}
    sizes = {"layers": Sizes.layers, "length": Sizes.length, "vocab": Sizes.vocab}
    document = {"machine": machine(), "ranks": RANKS, **settings, **sizes, "results": measure(settings)}
    show(document)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


def read_arguments() -> argparse.Namespace:
    """The settings of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench", description="graphpar's programs next to others'")
    parser.add_argument("--widths", type=int, nargs="+", default=[128, 256, 512, 768], help="multiples of 128")
    parser.add_argument("--batch", type=int, default=4, help="rows of the whole batch, an even number")
    parser.add_argument("--rounds", type=int, default=40, help="how often each program is timed")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args()


def measure(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Compile for every width, and run the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for width in settings["widths"]:
            write_builds(root, Sizes(width))
        return launched("worker", root, settings, RANKS)


if __name__ == "__main__":
    main()
