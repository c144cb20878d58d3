"""`graphpar visualize BUILD`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from graphpar.check.folder import read_build
from graphpar.errors import Diagnostic, GraphparError
from graphpar.viz.dot import dot
from graphpar.viz.figure import KINDS as FIGURES
from graphpar.viz.figure import draw_figure
from graphpar.viz.heading import Heading, heading
from graphpar.viz.overview import overview
from graphpar.viz.page import page
from graphpar.viz.part import part
from graphpar.viz.picture import Picture
from graphpar.viz.render import FORMATS, NoDotError, render
from graphpar.viz.schedule import schedule
from graphpar.viz.walk import draw

SUFFIXES = (*FORMATS, "dot", "html")
NO_DOT = (
    "graphviz's `dot` is not installed, so DOT text and HTML pages take the place of pictures"
    " (Debian, Ubuntu: apt install graphviz; macOS: brew install graphviz)"
)


@dataclass(frozen=True)
class View:
    """What of a program is drawn: modules, layers that are alike folded, or every statement; or one module of it."""

    level: str = "module"
    at: str | None = None

    def text(self, picture: Picture, facts: Heading) -> str:
        """The DOT text. Raises GraphparError if there is no such module."""
        if self.at is not None:
            picture, facts = part(picture, self.at), replace(facts, gradients=())
        return (dot if self.level == "op" else overview)(picture, facts)


@dataclass(frozen=True)
class Pictures:
    """What was written, and whether `dot` was missing for what was asked."""

    files: tuple[Path, ...]
    without_dot: bool = False


WHOLE = View()


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
@click.option(
    "--format",
    "formats",
    multiple=True,
    type=click.Choice(SUFFIXES),
    help="the same as -o BUILD/graph.FORMAT; step-PASS or FIGURE in the place of graph",
)
@click.option(
    "--level",
    type=click.Choice(("module", "op")),
    help="modules, layers that are alike folded, or every statement  [default: module; op with --at]",
)
@click.option("--at", metavar="MODULE", help="only this module, as `layers.0.attention`")
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
    formats: tuple[str, ...],
    level: str | None,
    at: str | None,
    batch: int | None,
    seq: int | None,
    step: str | None,
    passes: Path | None,
    figure: str | None,
    metrics: Path | None,
    as_json: bool,
) -> None:
    """Draw the program in BUILD: modules, parameters, and every collective with its mesh axis, bytes and reason."""
    given = {name: value for name, value in (("batch", batch), ("seq", seq)) if value is not None}
    asked = [
        word for word, value in (("--step", step), ("--figure", figure), ("--at", at), ("--level", level)) if value
    ]
    if len(asked) > 1 and asked != ["--at", "--level"]:
        raise click.UsageError(f"{' and '.join(asked)} ask for different pictures: draw one at a time")
    stem = figure or (f"step-{step}" if step else "graph")
    files = (*outputs, *(build / f"{stem}.{suffix}" for suffix in formats))
    if figure is not None:
        written = Pictures(draw_figure(build, figure, files, metrics))
    elif step is not None:
        from graphpar.viz.step import draw_step  # it compiles again, and that loads torch

        drawn = draw_step(build, step, files, passes)
        written = Pictures(drawn, without_dot=any(f.suffix == ".dot" and f not in files for f in drawn))
    else:
        written = visualize(build, files, given, View(level or ("module" if at is None else "op"), at))
    if as_json:
        click.echo(json.dumps({"files": [str(f) for f in written.files], "dot": not written.without_dot}, indent=1))
        return
    if written.without_dot:
        click.echo(NO_DOT, err=True)
    for file in written.files:
        click.echo(f"wrote {file}")


def visualize(
    build: Path, outputs: Sequence[Path] = (), given: dict[str, int] | None = None, view: View = WHOLE
) -> Pictures:
    """Draw a build into files by their suffix; without `dot`, DOT and HTML take the place of pictures.

    If no file is named, they are graph.svg and graph.html in the build, and schedule.svg where it has a pipeline.

    Raises GraphparError if the folder is no build, a suffix means nothing, or there is no such module.
    """
    for output in outputs:
        _require_known(output)
    program, plan = read_build(build)
    picture, facts = draw(program, plan), heading(plan, given or {})
    text = view.text(picture, facts)
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
            file.write_text(page(picture, facts, program) if file.suffix == ".html" else text, encoding="utf-8")
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
