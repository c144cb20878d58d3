"""`graphpar visualize BUILD`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from graphpar.check.folder import read_build
from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.dot import dot
from graphpar.viz.figure import KINDS as FIGURES
from graphpar.viz.figure import draw_figure
from graphpar.viz.heading import heading
from graphpar.viz.page import page
from graphpar.viz.render import FORMATS, NoDotError, render
from graphpar.viz.schedule import schedule
from graphpar.viz.walk import draw

SUFFIXES = (*FORMATS, "dot", "html")
NO_DOT = (
    "graphviz's `dot` is not installed, so DOT text and HTML pages take the place of pictures"
    " (Debian, Ubuntu: apt install graphviz; macOS: brew install graphviz)"
)


@dataclass(frozen=True)
class Pictures:
    """What was written, and whether `dot` was missing for what was asked."""

    files: tuple[Path, ...]
    without_dot: bool = False


@click.command("visualize")
@click.argument("build", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="ends in .svg, .png, .pdf, .dot or .html; may be repeated"
    "  [default: graph.svg and graph.html in BUILD, and schedule.svg if it has stages]",
)
@click.option("--batch", type=click.IntRange(1), help="sequences per step, for the number of bytes")
@click.option("--seq", type=click.IntRange(1), help="tokens per sequence, for the number of bytes")
@click.option("--step", metavar="PASS", help="draw what one step of the compilation did, such as `place`")
@click.option("--passes", type=click.Path(path_type=Path), metavar="DIR", help="passes of your own, for --step")
@click.option("--figure", type=click.Choice(FIGURES), help="draw a figure for a report, as .svg, .png or .pdf")
@click.option(
    "--metrics", type=click.Path(path_type=Path), metavar="FILE", help="for the loss  [default: run/metrics.jsonl]"
)
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout")
def command(
    build: Path,
    outputs: tuple[Path, ...],
    batch: int | None,
    seq: int | None,
    step: str | None,
    passes: Path | None,
    figure: str | None,
    metrics: Path | None,
    as_json: bool,
) -> None:
    """Draw the program in BUILD: modules, statements, and every collective with its mesh axis, bytes and reason."""
    given = {name: value for name, value in (("batch", batch), ("seq", seq)) if value is not None}
    if step is not None and figure is not None:
        raise click.UsageError("--step and --figure are two pictures: ask for one at a time")
    if figure is not None:
        written = Pictures(draw_figure(build, figure, outputs, metrics))
    elif step is not None:
        from graphpar.viz.step import draw_step  # it compiles again, and that loads torch

        files = draw_step(build, step, outputs, passes)
        written = Pictures(files, without_dot=any(f.suffix == ".dot" and f not in outputs for f in files))
    else:
        written = visualize(build, outputs, given)
    if as_json:
        click.echo(json.dumps({"files": [str(f) for f in written.files], "dot": not written.without_dot}, indent=1))
        return
    if written.without_dot:
        click.echo(NO_DOT, err=True)
    for file in written.files:
        click.echo(f"wrote {file}")


def visualize(build: Path, outputs: Sequence[Path] = (), given: dict[str, int] | None = None) -> Pictures:
    """Draw a build into files by their suffix; without `dot`, DOT and HTML take the place of pictures.

    If no file is named, they are graph.svg and graph.html in the build, and schedule.svg where it has a pipeline.

    Raises GraphparError if the folder is no build or a suffix means nothing.
    """
    for output in outputs:
        _require_known(output)
    program, plan = read_build(build)
    picture, facts = draw(program, plan), heading(plan, given or {})
    text = dot(picture, facts)
    files: dict[Path, None] = {}
    missing = False
    for output in outputs or (build / "graph.svg", build / "graph.html"):
        output.parent.mkdir(parents=True, exist_ok=True)
        kind = output.suffix.removeprefix(".")
        if kind in FORMATS and not missing:
            try:
                render(text, output)
                files[output] = None
                continue
            except NoDotError:
                missing = True
        instead = {output} if kind not in FORMATS else {output.with_suffix(".dot"), output.with_suffix(".html")}
        for file in sorted(instead):
            file.write_text(page(picture, facts) if file.suffix == ".html" else text, encoding="utf-8")
            files[file] = None
    if not outputs and (steps := schedule(plan)):
        (build / "schedule.svg").write_text(steps, encoding="utf-8")
        files[build / "schedule.svg"] = None
    return Pictures(tuple(files), missing)


def _require_known(output: Path) -> None:
    if output.suffix.removeprefix(".") not in SUFFIXES:
        message = f"`{output.name}` does not say which kind of picture to draw"
        raise GraphparError(
            Diagnostic("unknown-picture", None, message, fix=f"end it in {' '.join(f'.{s}' for s in SUFFIXES)}")
        )
