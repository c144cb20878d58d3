"""`graphpar compile`: a model and a spec to a build."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr

import click

from graphpar import library
from graphpar.cli.folder import check_folder, write_folder
from graphpar.cli.outcome import say_json
from graphpar.cli.specs import read_spec, with_ranks
from graphpar.cli.standalone import with_runtime


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
    read = with_ranks(read_spec(spec), world)
    folders = (passes,) if passes else ()
    library.passes(folders)  # that they can be found is known before the seconds that follow
    folder = output or Path("build") / f"{_stem(model)}-{Path(spec).stem}"
    check_folder(folder, force=force)

    from graphpar.compile import compile_captured
    from graphpar.explain.summary import summarize
    from graphpar.sources.captured import capture_source
    from graphpar.sources.coverage import assumed
    from graphpar.sources.door import open_model

    with redirect_stdout(stderr):  # stdout is ours alone, whatever the model prints
        source = open_model(model, read.model)
        captured = capture_source(source)
    record = {**source.record(folder), "spec_file": Path(read.path).name}
    build = compile_captured(captured, read, record, folders)
    files = with_runtime(build.files) if standalone else build.files
    write_folder(folder, files, build.plan)

    summary = summarize(build.plan, build.placed, read, (*source.said, *assumed(captured)), folder)
    if as_json:
        say_json(summary.to_json())
    else:
        summary.show()


def _stem(model: str) -> str:
    """A short name for a model: its class or function if given, else its file or folder."""
    path, _, name = model.rpartition(":") if ":" in model else (model, "", "")
    return name or Path(path).resolve().stem
