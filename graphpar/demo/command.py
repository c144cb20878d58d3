"""The story of the demo, from an empty folder to a picture."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from graphpar.demo.material import Material, NotOursError, prepare
from graphpar.demo.results import Losses, loss_in_source, read_losses, side_by_side, worth_reading
from graphpar.demo.steps import Step, StepError, run, torchrun

SPEC = "{model}_dp2_tp2_sp"  # data parallel x tensor parallel, with sequence parallel
STAGED = "{model}_pp2_tp2"  # a pipeline x tensor parallel
STAGED_STEPS = 30  # of the second act, if the first does not take fewer
RANKS = 4
SEQ, BATCH, EVALUATED = 128, 8, 8  # tokens, sequences per step, batches of held-out text
CLOSE = 1e-5  # float32: the ranks add in another order than one device does
CLOSE_STEPS = 1e-4  # and with each update that goes a little further
SHOWN = ("all_gather", "reduce_scatter")


@click.command("demo")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), default="graphpar-demo", show_default=True, metavar="FOLDER"
)
@click.option("--steps", type=click.IntRange(1), default=150, show_default=True, help="how long to train")
def command(output: Path, steps: int) -> None:
    """Compile a small GPT, train it on four processes, prove that it computes the same, and draw it; then in stages."""
    console = Console(highlight=False, soft_wrap=True)
    try:
        _tell(console, output, steps)
    except NotOursError as error:
        raise click.UsageError(f"{error}\nChoose another folder: graphpar demo -o FOLDER") from error
    except StepError as error:
        raise click.ClickException(f"the demo stops here: {error}") from error


def _tell(console: Console, folder: Path, steps: int) -> None:
    start = time.monotonic()
    material = prepare(folder)
    build, trained = folder / "build", folder / "run"
    spec = SPEC.format(model=material.model.name)
    size = material.text.stat().st_size / 1e6
    console.print(
        f"[bold]{material.model}[/]  a config.json, as transformers reads it: GPT-2, small enough for two cores"
    )
    console.print(f"[bold]{material.text}[/]  {size:.1f} MB of Python's standard library, {material.sources} files")

    _step(console, "Compile it", Step(("graphpar", "compile", str(material.model), spec, "-o", str(build)), 300))
    _step(console, "Train it on four processes", Step((*_training(material, build, trained, steps),), 1200))
    _step(console, "Prove that it computes what the model computes", Step(("graphpar", "verify", str(build)), 900))
    pictures = ("-o", str(build / "graph.svg"), "-o", str(build / "graph.png"), "-o", str(build / "graph.html"))
    _step(console, "Draw it", Step(("graphpar", "visualize", str(build), *pictures), 120))

    _title(console, "Take the weights back to transformers")
    losses, again = _taken_back(console, material, build, trained)

    _title(console, "A part of build/model.py")
    code = worth_reading((build / "model.py").read_text(encoding="utf-8"), SHOWN)
    console.print(_coloured(console, code))

    stages = _second_act(console, material, trained, min(steps, STAGED_STEPS))
    console.print()
    rows = _summary(build, trained, losses, again) | stages | {"took": f"{time.monotonic() - start:.0f} s"}
    console.print(Panel(_table(rows), title="graphpar demo"))


def _second_act(console: Console, material: Material, first: Path, steps: int) -> dict[str, str]:
    """The same model in the stages of a pipeline, next to the run before. What the summary says of it."""
    build, trained = material.folder / "stages", material.folder / "run-stages"
    spec = STAGED.format(model=material.model.name)
    _step(
        console,
        "The same model in stages: compile it",
        Step(("graphpar", "compile", str(material.model), spec, "-o", str(build)), 300),
    )
    _step(console, "Train the stages on four processes", Step((*_training(material, build, trained, steps),), 600))
    _step(console, "Draw what each rank does when", Step(("graphpar", "visualize", str(build)), 120))
    _title(console, "Compare the stages with the run before, and with transformers")
    pairs = side_by_side(first / "metrics.jsonl", trained / "metrics.jsonl")
    for step, (one, other) in enumerate(pairs):
        if not abs(one - other) <= CLOSE_STEPS * abs(one):
            raise StepError(f"in step {step} the loss of the stages is {other}, and without stages it was {one}")
    console.print(f"the first {len(pairs)} losses, before learning rates differ, are those of the run without stages:")
    console.print(" ".join(f"{loss:.3f}" for _, loss in pairs))
    _, again = _taken_back(console, material, build, trained)
    plan = _plan(build)
    pipeline = plan["pipeline"]
    return {
        "in stages": f"{len(pipeline['stages'])} on {_mesh(plan)}, {pipeline['schedule']}",
        "same loss": f"in the first {len(pairs)} steps; held out {again:.4f}, as in transformers",
        "schedule": f"{build}/schedule.svg",
    }


def _taken_back(console: Console, material: Material, build: Path, trained: Path) -> tuple[Losses, float]:
    """The losses of a run, and the held-out one of the source with its weights. Raises StepError if the two differ."""
    losses = read_losses(trained / "metrics.jsonl")
    pipeline = _plan(build)["pipeline"]
    rows = BATCH // (pipeline["microbatches"] if pipeline else 1)  # of a batch of evaluation
    again = loss_in_source(material.model, trained / "model.safetensors", material.text, SEQ, rows * EVALUATED)
    if not abs(again - losses.held_out) <= CLOSE * abs(losses.held_out):
        raise StepError(f"with these weights the source model has the held-out loss {again}, not {losses.held_out}")
    console.print(
        f"load_state_dict(strict=True), held-out loss {again:.6f}; on four processes it was {losses.held_out:.6f}"
    )
    return losses, again


def _training(material: Material, build: Path, trained: Path, steps: int) -> tuple[str, ...]:
    sizes = {"steps": steps, "batch": BATCH, "seq": SEQ, "lr": "3e-3", "eval-batches": EVALUATED}
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    train = (str(build / "train.py"), "--data", str(material.text), "--out", str(trained), *options)
    return (*torchrun(RANKS, *train),)


def _title(console: Console, title: str) -> None:
    console.print()
    console.rule(f"[bold]{title}", align="left")


def _step(console: Console, title: str, step: Step) -> None:
    _title(console, title)
    console.print(Text(f"$ {step}", style="bold cyan"))
    console.file.flush()  # what the step prints comes after this
    seconds = run(step)
    console.print(f"[dim]{seconds:.0f} s[/]")


def _coloured(console: Console, code: str) -> Text | Syntax:
    return Syntax(code, "python", theme="ansi_dark").highlight(code) if console.is_terminal else Text(code)


def _plan(build: Path) -> dict[str, Any]:
    return json.loads((build / "plan.json").read_text(encoding="utf-8"))


def _mesh(plan: dict[str, Any]) -> str:
    return " x ".join(f"{axis}={ranks}" for axis, ranks in plan["mesh"].items())


def _summary(build: Path, trained: Path, losses: Losses, again: float) -> dict[str, str]:
    plan = _plan(build)
    drawn = next(p for p in (build / "graph.png", build / "graph.html") if p.exists())
    return {
        "program": f"{build}/model.py and train.py, yours to read, run and edit",
        "mesh": f"{_mesh(plan)} ({RANKS} processes)",
        "layout": ", ".join(plan["layout"]),
        "loss": f"{losses.first:.2f} {losses.curve(40)} {losses.last:.2f}",
        "held out": f"{losses.held_out:.4f}; with the same weights in transformers {again:.4f}",
        "verified": "loss, gradients, three steps of AdamW and every collective",
        "picture": str(drawn),
        "weights": f"{trained}/model.safetensors",
    }


def _table(rows: dict[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    for word, text in rows.items():
        table.add_row(Text(word, style="bold"), Text(text))
    return table
