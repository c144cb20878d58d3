"""`graphpar names`: what every dimension of a model is called, before anything is sharded."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr

import click

from graphpar.builds.specs import read_spec
from graphpar.cli.outcome import say_json
from graphpar.errors import raise_if_any


@click.command("names")
@click.argument("model")
@click.argument("spec", required=False)
@click.option("--passes", type=click.Path(path_type=Path), metavar="DIR", help="a folder with passes of your own")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout, errors included")
def command(model: str, spec: str | None, passes: Path | None, as_json: bool) -> None:
    """Show the named axes of every parameter of MODEL, what named them, and what has no rule or no name.

    With SPEC, its section about the model is used, and its names are checked.
    """
    read = read_spec(spec) if spec else None

    from graphpar.compiler import simplify
    from graphpar.explain.names import names
    from graphpar.names.named import name
    from graphpar.place.check import check_named
    from graphpar.place.layout import cut_loops
    from graphpar.sources.captured import capture_source
    from graphpar.sources.coverage import assumed
    from graphpar.sources.door import open_model

    with redirect_stdout(stderr):
        source = open_model(model, read.model if read else None)
        captured = capture_source(source)
    graph = simplify(captured.graph, folders=(passes,) if passes else ())
    named = name(cut_loops(graph, read) if read else graph)
    problems = check_named(named, read) if read else ()
    report = names(
        named, f"{captured.graph.modules[''].cls} ({source.title})", (*source.said, *assumed(captured)), read
    )
    if not as_json:
        report.show()
    raise_if_any(problems)
    if as_json:
        say_json(report.to_json())
