"""Commands that are imported when they are run, and not to be listed."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

import graphpar
from graphpar.cli.outcome import told


@dataclass(frozen=True)
class Lazy:
    """A command by name; `module` has it as `command`. `help` is one line."""

    name: str
    module: str
    help: str

    @property
    def available(self) -> bool:
        """Whether this installation has the module; nothing is imported to find out."""
        path = Path(graphpar.__file__).parent.joinpath(*self.module.split(".")[1:])
        return path.with_suffix(".py").is_file() or path.joinpath("__init__.py").is_file()

    def load(self) -> click.Command:
        """Import the command; its errors are told like those of every other."""
        command = importlib.import_module(self.module).command
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.module}.command is no click command")
        return told(command)


class Commands(click.Group):
    """A group whose commands are imported one at a time."""

    def __init__(self, *args: Any, commands: Sequence[Lazy] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = {entry.name: entry for entry in commands if entry.available}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self.lazy[cmd_name].load() if cmd_name in self.lazy else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.help) for entry in self.lazy.values()])
