"""Measurements on several numbers of ranks: run, shown and written."""

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any

from tools.bench.report import machine

Document = dict[str, Any]


def measure_all(
    arguments: argparse.Namespace,
    names: tuple[str, ...],
    sizes: Mapping[str, int],
    measure: Callable[[Document], list[Document]],
    show: Callable[[Document], None],
) -> None:
    """Measure on each of `arguments.ranks` with the settings called `names`; write `arguments.json` if asked for."""
    given = vars(arguments)
    documents: list[Document] = []
    for ranks in arguments.ranks:
        settings = {"ranks": ranks, **{name: given[name] for name in names}}
        documents.append({"machine": machine(), **settings, **sizes, "results": measure(settings)})
        show(documents[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps(documents, indent=1) + "\n")
