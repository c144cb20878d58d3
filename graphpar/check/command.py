"""`graphpar check BUILD`."""

from __future__ import annotations

import json
import time
from math import prod
from pathlib import Path

import click

from graphpar.check.check import check_program
from graphpar.check.findings import diagnostics
from graphpar.check.folder import read_build, read_schedule
from graphpar.check.in_order import collectives
from graphpar.check.schedule import check_schedule
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
    wrong = diagnostics(check_program(text, plan), build / "model.py")
    wrong += diagnostics(check_schedule(read_schedule(build, plan), plan), build / "schedule.csv")
    raise_if_any(wrong)
    pipeline = plan.get("pipeline")
    found = {
        "ok": True,
        "ranks": prod(plan["mesh"].values()),
        "parameters": len(plan["parameters"]),
        "collectives": len(collectives(plan)),
        **({"actions": sum(len(row) for row in pipeline["order"].values())} if pipeline else {}),
        "seconds": round(time.monotonic() - start, 3),
    }
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    click.echo(
        f"{build / 'model.py'}: every value and gradient has the state that its use needs, on {found['ranks']} ranks; "
        f"{found['parameters']} parameters lie as the plan loads them; "
        f"{found['collectives']} collectives of the forward pass in the plan's order"
        + (f"; {found['actions']} actions of the schedule in an order that ends" if pipeline else "")
        + f" ({found['seconds']:.1f} s)"
    )
