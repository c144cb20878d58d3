"""`graphpar compile`: a model and a spec to a build."""

from __future__ import annotations

from pathlib import Path

import click

from graphpar.builds.make import make
from graphpar.cli.outcome import say_json


@click.command("compile")
@click.argument("model")
@click.argument("spec")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="BUILD", help="[default: build/MODEL-SPEC]")
@click.option("--world", type=click.IntRange(1), metavar="N", help="number of ranks, for a mesh with an axis of `rest`")
@click.option("--standalone", is_flag=True, help="copy the runtime into BUILD, which then needs torch alone")
@click.option("--passes", type=click.Path(path_type=Path), metavar="DIR", help="a folder with passes of your own")
@click.option("--force", is_flag=True, help="overwrite files of BUILD that were edited")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout, errors included")
def command(
    model: str,
    spec: str,
    output: Path | None,
    world: int | None,
    standalone: bool,
    passes: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Write a distributed program for MODEL, laid out as SPEC says.

    \b
    MODEL  model.py   model.py:GPT   package.module:GPT   a folder with a Hugging Face config.json
    SPEC   a YAML file, or the name of a spec that graphpar ships
    """
    summary = make(model, spec, output, world=world, standalone=standalone, passes=passes, force=force)
    if as_json:
        say_json(summary.to_json())
    else:
        summary.show()
