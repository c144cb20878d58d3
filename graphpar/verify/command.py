"""`graphpar verify BUILD`."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from graphpar.language.parse import parse_spec
from graphpar.sources.door import reopen
from graphpar.verify.batches import LENGTH, ROWS, require_fitting
from graphpar.verify.origin import Origin
from graphpar.verify.program import read_program
from graphpar.verify.report import Check, Report
from graphpar.verify.verify import GIB, Options, verify

_STYLE = {"exact": "green", "ok": "green", "failed": "bold red", "skipped": "yellow"}


@click.command("verify")
@click.argument("build", type=click.Path(path_type=Path))
@click.option("--seed", default=0, show_default=True, metavar="N", help="of weights and inputs")
@click.option("--rows", type=int, metavar="N", help=f"sequences in a batch, over all ranks  [default: {ROWS} or more]")
@click.option("--length", type=int, metavar="N", help=f"tokens in a sequence  [default: about {LENGTH}]")
@click.option("--memory", default=8.0, show_default=True, metavar="GIB", help="the most memory to use")
@click.option("--timeout", default=300.0, show_default=True, metavar="SECONDS", help="longest wait for a peer")
@click.option("--launch", is_flag=True, help="run each rank in a process of its own, under torchrun")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout, errors included")
def command(
    build: Path,
    as_json: bool,
    seed: int,
    rows: int | None,
    length: int | None,
    memory: float,
    timeout: float,
    launch: bool,
) -> None:
    """Prove that BUILD computes what its source model computes."""
    console = Console(stderr=as_json)
    program = read_program(build)
    require_fitting(program.plan, rows, length, build)
    options = Options(seed, rows or ROWS, length or LENGTH, int(memory * GIB), timeout, launch)
    spec = parse_spec((build / "spec.yaml").read_text(encoding="utf-8"), str(build / "spec.yaml"))
    with console.status("comparing with the source model"):
        source = reopen(program.document["source"], build, spec.model)
        report = verify(build, Origin(source.construct, source.signature), spec, options)
    if as_json:
        click.echo(json.dumps(report.json(), indent=1))
    else:
        show(report, console)
    report.raise_if_failed()


def show(report: Report, console: Console) -> None:
    """Print the report as a table."""
    mesh = " x ".join(f"{axis}={size}" for axis, size in report.mesh.items())
    table = Table(title=f"{report.build} on mesh {mesh}, {report.sizes}, seed {report.seed}", title_justify="left")
    for heading in ("check", "result", "worst", "allowed", "compared"):
        table.add_column(heading, justify="right" if heading in ("worst", "allowed") else "left")
    for check in report.checks:
        table.add_row(*_row(check))
    console.print(table)
    word = "all checks passed" if report.passed else f"{len(report.failures)} of {len(report.checks)} checks failed"
    console.print(f"{word} in {report.seconds:.1f} s")


def _row(check: Check) -> tuple[str, ...]:
    style = _STYLE[check.outcome]
    error = "" if check.error is None else f"{check.error:.1e}" if check.error else "0"
    limit = "" if check.limit is None else f"{check.limit:.0e}"
    result = f"[{style}]{check.outcome}[/{style}]"
    return check.name, result, error, limit, escape(check.compared or check.detail)
