"""How a command ends: what is said where, and the exit code."""

from __future__ import annotations

import copy
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

import graphpar
from graphpar.errors import GraphparError, Span, render_all, to_json
from graphpar.sources.paths import shown

INTERNAL = 1


@dataclass(frozen=True)
class Form:
    """How a command speaks: text, or one JSON document on stdout; and whether a failure shows a traceback."""

    json: bool
    traceback: bool


def told(command: click.Command) -> click.Command:
    """The same command with `--traceback`, its errors told as `outcome` does; `--json` is its parameter `as_json`."""
    action = command.callback
    assert action is not None

    def callback(*, traceback: bool, **given: Any) -> Any:
        with outcome(Form(bool(given.get("as_json")), traceback)):
            return action(**given)

    shown = click.Option(["--traceback"], is_flag=True, help="show where in graphpar an error comes from")
    made = copy.copy(command)
    made.callback, made.params = callback, [*command.params, shown]
    return made


@contextmanager
def outcome(form: Form) -> Iterator[None]:
    """Turn errors into their text and exit code: 2 spec or command line, 3 model, 1 a check or graphpar itself."""
    try:
        yield
    except GraphparError as raised:
        error = _near(raised)
        if form.traceback:
            traceback.print_exc()
        if form.json:
            say_json({"ok": False, "errors": [to_json(d) for d in error.diagnostics]})
        else:
            click.echo(render_all(error), err=True)
        sys.exit(error.exit_code)
    except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
        raise  # click ends quietly if nobody reads on
    except Exception as error:  # noqa: BLE001 - a mistake of ours is told in two lines, too
        _tell_internal(error, form)
        sys.exit(INTERNAL)


def _near(error: GraphparError) -> GraphparError:
    """The same diagnostics with places as seen from the working directory."""
    return GraphparError(
        replace(d, span=_seen(d.span), notes=tuple(replace(n, span=_seen(n.span)) for n in d.notes))
        for d in error.diagnostics
    )


def _seen(span: Span | None) -> Span | None:
    return replace(span, file=shown(span.file)) if span is not None and span.file else span


def say_json(document: object) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(document, indent=1))


def _tell_internal(error: Exception, form: Form) -> None:
    if form.traceback:
        traceback.print_exc()
    place = _innermost(error)
    message = f"{type(error).__name__}: {error}".strip()
    if form.json:
        say_json({"ok": False, "internal": {"message": message, "place": place}})
        return
    click.echo(f"internal error: {message}\n    at {place}", err=True)
    if not form.traceback:
        click.echo("    this is a mistake in graphpar, not yours; --traceback shows all of it", err=True)


def _innermost(error: Exception) -> str:
    """The last place in graphpar, or the last one at all."""
    entries = traceback.extract_tb(error.__traceback__)
    root = Path(graphpar.__file__).parent
    ours = [e for e in entries if Path(e.filename).is_relative_to(root)] or list(entries)
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} in {ours[-1].name}" if ours else "an unknown place"
