"""`graphpar visualize BUILD --step PASS`: the program before and after one step of its compilation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphpar.builds.again import Again, compile_again
from graphpar.builds.log import counted
from graphpar.errors import Diagnostic, GraphparError, Note, did_you_mean
from graphpar.ir.axes import spell_all
from graphpar.ir.difference import Difference, difference
from graphpar.ir.graph import Node
from graphpar.rewrite.steps import Step
from graphpar.viz.neighbours import neighbours
from graphpar.viz.render import FORMATS, NoDotError, render
from graphpar.viz.step_boxes import boxes
from graphpar.viz.step_dot import Title, step_dot

SUFFIXES = (*FORMATS, "dot")


def draw_step(build: Path, name: str, outputs: Sequence[Path] = (), passes: Path | None = None) -> tuple[Path, ...]:
    """Draw what one step did to a build's program into files, by default into step-NAME.svg in the build.

    Without `dot`, DOT takes the place of pictures. Raises GraphparError if there is no such step, if it changed
    nothing, or if the build is no longer that of its model and spec.
    """
    for output in outputs:
        _require_known(output)
    again = compile_again(build, (passes,) if passes else ())
    step = _chosen(again, name)
    found = difference(step.before, step.after)
    if found.empty:
        raise GraphparError(_nothing(again, step))
    text = dot_of(again, step, found)
    return tuple(_written(text, output) for output in outputs or (build / f"step-{step.name}.svg",))


def dot_of(again: Again, step: Step, found: Difference) -> str:
    """The picture of a step as DOT."""

    def spell(node: Node) -> str:
        if node.state is not None:
            return again.program.shape(node)
        return (spell_all(node.axes) if node.axes is not None else " ".join(map(str, node.shape))) or "scalar"

    part = neighbours(found)
    drawn = boxes(found, part, spell)
    facts = [words for heading in ("What it does", "Why") if (words := step.said(heading))]
    facts += [f"here: {counted(found)}; {_untouched(found)}"]
    source = again.plan["source"]
    title = f"{step.name}, for {source['model']} by {source['spec_file']}"
    return step_dot(drawn, Title(title, step.purpose, tuple(facts), again.plan["mesh"]))


def _untouched(found: Difference) -> str:
    count = len(found.after.nodes) - len(found.added) - len(found.changed)
    return f"{count} of {len(found.after.nodes)} ops are as they were"


def _written(text: str, output: Path) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix != ".dot":
        try:
            render(text, output)
        except NoDotError:
            output = output.with_suffix(".dot")
    if output.suffix == ".dot":
        output.write_text(text, encoding="utf-8")
    return output


def _chosen(again: Again, name: str) -> Step:
    for step in again.steps:
        if step.name == name:
            return step
    names = [step.name for step in again.steps]
    message = f"no step is called `{name}`{did_you_mean(name, names)}"
    raise GraphparError(Diagnostic("unknown-step", None, message, notes=tuple(map(_note, again.steps))))


def _note(step: Step) -> Note:
    found = counted(difference(step.before, step.after)) or "nothing changed"
    return Note(f"{step.name}: {step.purpose} Here: {found}.")


def _nothing(again: Again, step: Step) -> Diagnostic:
    acted = [s.name for s in again.steps if not difference(s.before, s.after).empty]
    return Diagnostic(
        "nothing-to-draw",
        None,
        f"step `{step.name}` changed nothing in this model, so there is nothing to draw",
        why=tuple(text for text in (step.purpose, step.said("What it does")) if text),
        fix=f"--step {' | '.join(acted)}",
        kind="check",
    )


def _require_known(output: Path) -> None:
    if output.suffix.removeprefix(".") not in SUFFIXES:
        message = f"`{output.name}` does not say which kind of picture to draw"
        fix = f"end it in {' '.join(f'.{s}' for s in SUFFIXES)}"
        raise GraphparError(Diagnostic("unknown-picture", None, message, fix=fix))
