"""Tables on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table as RichTable

WIDE = 120  # where there is no terminal to ask


@dataclass(frozen=True)
class Table:
    """A title, the names of the columns, and the rows. Columns called `count` and `bytes` are set to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def print_tables(before: Iterable[str], tables: Iterable[Table], after: Iterable[str]) -> None:
    """Print lines, tables, lines, with an empty line between parts."""
    console = Console(width=width(), highlight=False, markup=False, soft_wrap=False)
    with console.capture() as written:
        _print(console, before, tables, list(after))
    print("\n".join(line.rstrip() for line in written.get().splitlines()))  # noqa: T201


def _print(console: Console, before: Iterable[str], tables: Iterable[Table], after: Sequence[str]) -> None:
    _lines(console, before)
    for table in tables:
        console.print()
        console.print(table.title, soft_wrap=True)
        if table.rows:
            console.print(_rich(table))
    if after:
        console.print()
    _lines(console, after)


def _lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


def width() -> int:
    """The columns of the terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDE


def _rich(table: Table) -> RichTable:
    made = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for name in table.columns:
        made.add_column(name, justify="right" if name in ("count", "bytes") else "left", overflow="fold")
    for row in table.rows:
        made.add_row(*row)
    return made
