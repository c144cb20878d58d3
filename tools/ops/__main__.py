"""`python -m tools.ops`: write the page of op rules, and the ops that decoder families export."""

import argparse
from pathlib import Path

import torch
from rich.progress import track

from tools.ops.families import FAMILIES, FILE, exported, record, recorded
from tools.ops.page import page


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.ops", description="what each op may have cut")
    parser.add_argument("--write", type=Path, help="write the page to this file")
    parser.add_argument("--families", action="store_true", help=f"export every family anew, and write {FILE.name}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the tensors are tiny: more threads only wait for each other
    if arguments.families:
        found = [(family, exported(family)) for family in track(FAMILIES, description="families")]
        FILE.write_text(record(found), encoding="utf-8")
    if arguments.write:
        arguments.write.write_text(page(recorded()), encoding="utf-8")


if __name__ == "__main__":
    main()
