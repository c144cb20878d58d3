"""The steps in which a build was made: a build does not keep them, so it is compiled again and compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from sys import stderr
from typing import TYPE_CHECKING, Any

from graphpar import __version__, library
from graphpar.builds.folder import digest
from graphpar.builds.log import LOG
from graphpar.check.folder import read_build
from graphpar.errors import Diagnostic, GraphparError
from graphpar.language.parse import parse_spec
from graphpar.language.schema import Spec
from graphpar.rewrite.steps import Record, Step

if TYPE_CHECKING:
    from graphpar.codegen.program import Program

Plan = Mapping[str, Any]
OF_NAMES = ("source", "files")  # what a plan says of files and versions, and not of the program


@dataclass(frozen=True)
class Again:
    """The steps of a build, and the program that came of them."""

    plan: Plan
    steps: tuple[Step, ...]
    program: Program


def compile_again(build: Path, folders: Sequence[Path] = ()) -> Again:
    """Compile a build's model for its spec once more; nothing is written.

    Raises GraphparError if model or spec are gone or are others, or if another program comes of them.
    """
    _, plan = read_build(build)
    spec = _spec(build, plan)
    library.passes(folders)

    # What follows loads torch; the mistakes above are told at once.
    from graphpar.compiler import compile_captured
    from graphpar.sources.captured import capture_source
    from graphpar.sources.door import reopen

    with redirect_stdout(stderr):  # stdout is ours alone, whatever the model prints
        captured = capture_source(reopen(plan["source"], build, spec.model))
    record = Record(captured.graph)
    made = compile_captured(captured, spec, plan["source"], folders, record)
    _require_same_steps(build, record.steps)
    _require_same(build, plan, json.loads(made.files["plan.json"]))
    return Again(plan, tuple(record.steps), made.program)


def _spec(build: Path, plan: Plan) -> Spec:
    """The spec of a build, as it was when the build was made."""
    path = build / "spec.yaml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        message = f"{build} is no whole build: its spec.yaml cannot be read"
        raise GraphparError(_compile_again(build, "no-build", message, str(error))) from error
    if digest(text) != plan.get("files", {}).get(path.name):
        raise GraphparError(_compile_again(build, "spec-changed", f"{path} has changed since this build was made"))
    return parse_spec(text, str(path))


def _require_same_steps(build: Path, steps: Sequence[Step]) -> None:
    """The steps are those that the log of the build names, if it still has one."""
    try:
        logged = [step["name"] for step in json.loads((build / LOG).read_text(encoding="utf-8"))["steps"]]
    except (OSError, ValueError, KeyError, TypeError):
        return
    names = [step.name for step in steps]
    missing = [word for word in logged if word not in names]
    more = [word for word in names if word not in logged]
    if missing or more:
        why = [f"{word}: in {LOG}, and not found now" for word in missing]
        why += [f"{word}: found now, and not in {LOG}" for word in more]
        raise GraphparError(
            Diagnostic(
                "other-passes",
                None,
                f"{build} was compiled with other passes",
                why=tuple(why),
                fix=f"--passes DIR   # the folder that `graphpar compile` was given for {build}, if it was given one",
                kind="check",
            )
        )


def _require_same(build: Path, plan: Plan, made: Plan) -> None:
    """The program is the one of the build: neither graphpar nor a library makes another of the same files by now."""
    old, new = (json.loads(json.dumps(_of_program(p))) for p in (plan, made))
    different = [key for key in new if new[key] != old.get(key)]
    if different:
        source = plan["source"]
        versions = f"graphpar {source.get('graphpar')} and torch {source.get('torch')} made it; this is {__version__}"
        message = f"another program comes of the model and the spec of {build} by now"
        raise GraphparError(
            _compile_again(build, "other-program", message, f"plan.json: {', '.join(different)}", versions)
        )


def _of_program(plan: Plan) -> dict[str, Any]:
    found = {key: _without_lines(value) for key, value in plan.items() if key not in OF_NAMES}
    if found.get("pipeline"):
        found["pipeline"] = {**found["pipeline"], "schedule": ""}  # a file has another name inside of the build
    return found


def _without_lines(value: Any) -> Any:
    """A part of a plan without the lines of rules: spec.yaml has others than the file that it was made from."""
    if isinstance(value, dict):
        return value["text"] if value.keys() == {"text", "line"} else {k: _without_lines(v) for k, v in value.items()}
    return [_without_lines(v) for v in value] if isinstance(value, list) else value


def _compile_again(build: Path, code: str, message: str, *why: str) -> Diagnostic:
    return Diagnostic(code, None, message, why=why, fix=f"graphpar compile MODEL SPEC -o {build}", kind="check")
