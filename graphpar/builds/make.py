"""From a model and a spec, as the command line or a caller names them, to a build in a folder."""

from __future__ import annotations

from contextlib import redirect_stdout
from pathlib import Path
from sys import stderr
from typing import TYPE_CHECKING

from graphpar import library
from graphpar.builds.folder import check_folder, write_folder
from graphpar.builds.specs import read_spec, with_ranks
from graphpar.builds.standalone import with_runtime
from graphpar.check.check import check_program
from graphpar.check.schedule import check_schedule
from graphpar.errors import Diagnostic, GraphparError, raise_if_any

if TYPE_CHECKING:
    from graphpar.compiler import Build
    from graphpar.explain.summary import Summary


def make(
    model: str,
    spec: str,
    output: Path | None = None,
    *,
    world: int | None = None,
    standalone: bool = False,
    passes: Path | None = None,
    force: bool = False,
) -> Summary:
    """Compile a model into the folder `output`, or build/MODEL-SPEC, and return what is worth saying of it.

    Raises GraphparError with everything that is wrong; then nothing is written.
    """
    read = with_ranks(read_spec(spec), world)
    folders = (passes,) if passes else ()
    library.passes(folders)  # that they can be found is known before the seconds that follow
    folder = output or Path("build") / f"{_stem(model)}-{Path(spec).stem}"
    check_folder(folder, force=force)

    # What follows loads torch; the mistakes above are told at once.
    from graphpar.builds.log import LOG, log
    from graphpar.compiler import compile_captured
    from graphpar.explain.expect import over_budget
    from graphpar.explain.summary import summarize
    from graphpar.rewrite.steps import Record
    from graphpar.sources.captured import capture_source
    from graphpar.sources.coverage import assumed
    from graphpar.sources.door import open_model

    with redirect_stdout(stderr):  # stdout is ours alone, whatever the model prints
        source = open_model(model, read.model)
        captured = capture_source(source)
    record = {**source.record(folder), "spec_file": Path(read.path).name}
    steps = Record(captured.graph)
    build = compile_captured(captured, read, record, folders, steps)
    unproven = proven(build)
    said = (*source.said, *assumed(captured), *unproven)
    summary = summarize(build.plan, build.placed, read, said, folder, build.cutting)
    if read.expect is not None:
        lines = len(build.files["model.py"].splitlines())
        raise_if_any(over_budget(read.expect, summary.traffic, summary.memory, lines))
    files = with_runtime(build.files) if standalone else build.files
    write_folder(folder, files, build.plan, {LOG: log(steps.steps)})
    return summary


def proven(build: Build) -> list[str]:
    """What the text of a program does not prove by itself, each with its line.

    Raises GraphparError if the text is wrong: nothing that was compiled is trusted for having been compiled.
    """
    findings = check_program(build.files["model.py"], build.plan)
    why = tuple(f"model.py:{f.line}: {f.message}" for f in findings if f.followed)
    ordered = check_schedule(build.files.get("schedule.csv", ""), build.plan)
    why += tuple(f"schedule.csv:{f.line}: {f.message}" for f in ordered)
    if why:
        message = "the program that graphpar made of this model is wrong: a mistake of graphpar, and nothing is written"
        raise GraphparError(Diagnostic("wrong-program", None, message, why=why, kind="check"))
    return [f"not checked from the text, model.py:{f.line}: {f.message}" for f in findings]


def _stem(model: str) -> str:
    """A short name for a model: its class or function if given, else its file or folder."""
    path, _, name = model.rpartition(":") if ":" in model else (model, "", "")
    return name or Path(path).resolve().stem
