"""`python -m tools.mutants`: make every mutant, have it judged, print a table."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
from rich.progress import track

from tools.mutants.builds import Build, compiled
from tools.mutants.judge import Outcome, judge
from tools.mutants.mutant import Mutant
from tools.mutants.report import page, score, show
from tools.mutants.table import MUTANTS


def main() -> None:
    """Exit status 1 if a mutant that computes something else survives."""
    arguments = read_arguments()
    torch.set_num_threads(1)  # the models are tiny: more threads only wait for each other
    chosen = [m for m in MUTANTS if arguments.only in f"{m.kind}: {m.build}: {m.name}"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        outcomes = judged(chosen, Path(folder))
    show(outcomes)
    if arguments.json:
        document = {**score(outcomes), "outcomes": [outcome.json() for outcome in outcomes]}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        arguments.write.write_text(page(outcomes), encoding="utf-8")
    if any(outcome.is_hole for outcome in outcomes):
        sys.exit(1)


def read_arguments() -> argparse.Namespace:
    """The settings of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="wrong programs, and who rejects them")
    parser.add_argument("--only", default="", help="mutants with this in 'kind: build: name'")
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    parser.add_argument("--write", type=Path, help="write a page of Markdown to this file")
    return parser.parse_args()


def judged(mutants: list[Mutant], root: Path) -> list[Outcome]:
    """Every mutant's outcome; each build is compiled once."""
    builds: dict[str, Build] = {}
    outcomes: list[Outcome] = []
    for mutant in track(mutants, description="mutants"):
        if mutant.build not in builds:
            builds[mutant.build] = compiled(mutant.build, root)
        outcomes.append(judge(mutant, builds[mutant.build]))
    return outcomes


if __name__ == "__main__":
    main()
