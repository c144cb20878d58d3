"""The command line. What a command needs is imported when the command runs: `graphpar --help` takes no seconds."""

from __future__ import annotations

import click

from graphpar import __version__
from graphpar.cli.commands import Commands, Lazy

COMMANDS = (
    Lazy("compile", "graphpar.cli.compile", "write a distributed program for a model and a spec"),
    Lazy("names", "graphpar.cli.names", "show the named dimensions of every parameter of a model"),
    Lazy("check", "graphpar.check.command", "prove from its text that the ranks of a build work together"),
    Lazy("verify", "graphpar.verify.command", "prove that a build computes what its model computes"),
    Lazy("visualize", "graphpar.viz.command", "draw a build"),
    Lazy("explain", "graphpar.cli.explain", "say why each collective of a build is there"),
    Lazy("demo", "graphpar.demo.command", "compile, verify, draw and train a small model"),
)


@click.group(cls=Commands, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="graphpar")
def main() -> None:
    """Compile a single-device PyTorch model and a spec of named dimensions into distributed PyTorch.

    \b
        graphpar compile model.py spec.yaml -o build
        graphpar verify build
        torchrun --standalone --nproc-per-node 4 build/train.py --data text.txt
    """
