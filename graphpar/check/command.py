"""`graphpar check BUILD`."""

from __future__ import annotations

import json
import time
from math import prod
from pathlib import Path

import click

from graphpar.check.check import check_program, collectives
from graphpar.check.findings import diagnostics
from graphpar.check.folder import read_build
from graphpar.errors import raise_if_any


@click.command("check")
@click.argument("build", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout, errors included")
def command(build: Path, as_json: bool) -> None:
    """Prove from its text alone that the ranks of BUILD compute one device's values and gradients, in step.

    Nothing is run, and nothing of the compiler is asked. Edit model.py, and check it again in a second.
    """
    start = time.monotonic()
    text, plan = read_build(build)
    raise_if_any(diagnostics(check_program(text, plan), build / "model.py"))
    found = {
        "ok": True,
        "ranks": prod(plan["mesh"].values()),
        "parameters": len(plan["parameters"]),
        "collectives": len(collectives(plan)),
        "seconds": round(time.monotonic() - start, 3),
    }
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    click.echo(
        f"{build / 'model.py'}: every value and gradient has the state that its use needs, on {found['ranks']} ranks; "
        f"{found['parameters']} parameters lie as the plan loads them; "
        f"{found['collectives']} collectives of the forward pass in the plan's order ({found['seconds']:.1f} s)"
    )
