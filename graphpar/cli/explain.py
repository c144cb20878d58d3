"""`graphpar explain BUILD`: why each collective is there, and what it would take to be rid of it."""

from __future__ import annotations

from pathlib import Path

import click

from graphpar.cli.outcome import say_json


@click.command("explain")
@click.argument("build", type=click.Path(path_type=Path))
@click.argument("where", required=False)
@click.option("--diff", "other", type=click.Path(path_type=Path), metavar="OTHER", help="compare with another build")
@click.option("--batch", type=click.IntRange(1), help="sequences per step, for the number of bytes")
@click.option("--seq", type=click.IntRange(1), help="tokens per sequence, for the number of bytes")
@click.option("--json", "as_json", is_flag=True, help="one JSON document on stdout")
def command(
    build: Path, where: str | None, other: Path | None, batch: int | None, seq: int | None, as_json: bool
) -> None:
    """Say of a collective, parameter, module or line of BUILD what it is, how often it runs, its bytes, and why.

    \b
    WHERE is one of
        7                      a collective, as it is numbered
        all_gather/tp          all of a kind, over an axis
        mlp.up.weight          a parameter; the end of its name is enough
        layers.0.attention     a module of the source, or an op in it
        my_model.py:87         a line of the source
        model.py:123           a line of BUILD/model.py

    Without WHERE, all collectives are listed.
    """
    from graphpar.check.folder import read_build
    from graphpar.explain.asked import require_one_question
    from graphpar.explain.different import difference
    from graphpar.explain.explained import explained, spec_of
    from graphpar.viz.answer import answer

    given = {name: value for name, value in (("batch", batch), ("seq", seq)) if value is not None}
    text, plan = read_build(build)
    if other is not None:
        require_one_question(where, build, other)
        found = difference(plan, read_build(other)[1], given)
    else:
        found = answer(explained(plan, spec_of(build), given), text, build, where)
    if as_json:
        say_json(found.to_json())
    else:
        found.show(str(build), str(other))
