"""The figures for people, and the machine that they are of."""

import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.table import Table

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
    where = document["machine"]
    out = Table(
        title="Forward and backward of a GPT: graphpar's program next to others",
        caption="{layers} layers, batch {batch} x {length}, vocabulary {vocab}, {ranks} ranks, Gloo, "
        "medians of {rounds} rounds\n".format(**document)
        + "{cpu}, {cores} cores, torch {torch}, load before {load}".format(**where),
        box=box.SIMPLE,
    )
    for title in ("parallel", "width", "graphpar", "next to", "", "ratio", "95 %"):
        out.add_column(title, justify="left" if title in ("parallel", "next to", "95 %") else "right", no_wrap=True)
    for result in document["results"]:
        for ratio in result["ratios"]:
            own, other = (result["milliseconds"][ratio[which]] for which in ("of", "to"))
            interval = f"{ratio['low']:.3f} to {ratio['high']:.3f}"
            texts = (f"{own:.1f} ms", ratio["to"], f"{other:.1f} ms", f"{ratio['median']:.3f}", interval)
            out.add_row(KINDS[result["layout"]], str(result["width"]), *texts)
    Console().print(out)
