"""The figures for people, and the machine that they are of."""

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from graphpar.explain.tables import WIDE

KINDS = {"tp": "tensor", "dp": "data", "pp": "pipeline"}


def machine() -> dict[str, Any]:
    """What the figures depend on. Ask before the measurement: `load` is that of other work."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "load": round(os.getloadavg()[0], 2),  # how many processes ran in the minute before
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def show(document: Mapping[str, Any]) -> None:
    """Print a table: medians over rounds, and paired ratios with their 95 % intervals."""
    title = "Forward and backward of a GPT: graphpar's program next to others"
    sizes = "{layers} layers, batch {batch} x {length}, vocabulary {vocab}, {ranks} ranks".format(**document)
    rows: list[Sequence[str]] = []
    for result in document["results"]:
        for ratio in result["ratios"]:
            own, other = (f"{result['milliseconds'][ratio[which]]:.1f} ms" for which in ("of", "to"))
            rows.append((KINDS[result["layout"]], str(result["width"]), own, ratio["to"], other, *_texts(ratio)))
    _print(title, ("parallel", ">width", ">graphpar", "next to", ">", ">ratio", "95 %"), rows, sizes, document)


def show_experts(document: Mapping[str, Any]) -> None:
    """Print a table: medians of tokens per second, and paired ratios of them."""
    title = "Training a mixture of experts: tokens per second of graphpar's expert parallelism next to others"
    sizes = "{topk} of {experts} experts, batch {batch} x {length}, {ranks} ranks".format(**document)
    rows: list[Sequence[str]] = []
    for result in document["results"]:
        for ratio in result["ratios"]:
            own, other = (f"{result['tokens_per_second'][ratio[which]]:,}" for which in ("of", "to"))
            rows.append((str(result["width"]), own, ratio["to"], other, *_texts(ratio)))
    _print(title, (">width", ">graphpar", "next to", ">", ">ratio", "95 %"), rows, sizes, document)
    for result in document["results"]:
        moved = ", ".join(f"{count:,} {how}" for how, count in result["moved"].items())
        print(f"width {result['width']}: elements that dispatch and combine moved, choices {moved}")


def _texts(ratio: Mapping[str, Any]) -> tuple[str, str]:
    return f"{ratio['median']:.3f}", f"{ratio['low']:.3f} to {ratio['high']:.3f}"


def _print(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], sizes: str, document: Mapping[str, Any]
) -> None:
    """A table, as wide as it is; columns whose names begin with > are set to the right."""
    caption = "{}, Gloo, medians of {rounds} rounds\n".format(sizes, **document)
    caption += "{cpu}, {cores} cores, torch {torch}, load before {load}".format(**document["machine"])
    out = Table(title=title, caption=caption, box=box.SIMPLE)
    for name in columns:
        out.add_column(name.removeprefix(">"), justify="right" if name.startswith(">") else "left", no_wrap=True)
    for row in rows:
        out.add_row(*row)
    Console(width=None if sys.stdout.isatty() else WIDE).print(out)
