"""train.py of a build: the training loop in plain sight, from the text beside this file."""

from collections.abc import Mapping
from importlib.resources import files
from math import prod
from string import Template

# A model that divides its loss by itself is given no count.
_UNCOUNTED = {
    "    count_labels,\n": "",
    """            # The loss is a mean over the labels of all ranks and microbatches, so this is its only divisor.
            count = count_labels(model, microbatches, plan, mesh)
""": "            # The model divides its loss by itself, so each rank has a summand of it.\n",
    "model(**batch, count=count)": "model(**batch)",
}

# The stages of a pipeline run all microbatches of a step together, in the order of schedule.csv.
_PIPELINE = {
    "from contextlib import nullcontext\n": "",
    "from graphpar.runtime.training import (\n": """from graphpar.runtime.pipeline import Pipeline, read_schedule
from graphpar.runtime.training import (
""",
    "  # this rank's shards only, not yet filled": "  # this rank's stages only, not yet filled",
    """    autocast = matmul_precision(settings.precision, mesh.device)
""": """    autocast = matmul_precision(settings.precision, mesh.device)
    pipeline = Pipeline(model, plan, mesh, read_schedule(HERE / "schedule.csv"), autocast)
""",
    """            loss = torch.zeros((), device=mesh.device)
            for index, batch in enumerate(microbatches):
                mesh.seed(settings.seed, step, index)  # dropout: the same masks in a resumed run
                with autocast:
                    share = model(**batch, count=count)  # this rank's summand of the loss
                # Gradients add up over microbatches; sums over the mesh start while the last backward still runs.
                with sums.last_microbatch() if batch is microbatches[-1] else nullcontext():
                    share.backward()
                loss += share.detach()
            sums.finish()
""": """            # Forward and backward of all microbatches, in the order of schedule.csv; every rank gets the loss.
            loss = pipeline.step(microbatches, count, seed=settings.seed, step=step)
            sums.finish()  # over the mesh, and of what stages share, over these
""",
    "plan, mesh, autocast))": "plan, mesh, autocast, pipeline))",
}
# Each row of tokens has one label.
_ROWS = {
    "--data input.txt": "--data rows.jsonl",
    "    read_plan,\n": "    read_plan,\n    read_rows,\n",
    "    read_tokens,\n": "",
    "    tokens = read_tokens(settings.data, settings.tokenizer, plan.vocab)": "    rows = read_rows(settings, plan)",
    "Batches(tokens,": "Batches(rows,",
}
_PIPELINE_UNCOUNTED = {
    part.replace("model(**batch, count=count)", "model(**batch)"): other.replace(
        "microbatches, count,", "microbatches, None,"
    )
    for part, other in _PIPELINE.items()
}


def train_program(
    class_name: str, mesh: Mapping[str, int], *, counted: bool = True, pipeline: bool = False, rows: bool = False
) -> str:
    """The text of train.py for the class `class_name` of the build's model.py.

    `counted` says whether the model is given the number of labels that its loss is divided by, `pipeline` whether it
    is in stages, `rows` whether each row of tokens has one label.
    """
    text = files("graphpar.codegen").joinpath("train.py.txt").read_text(encoding="utf-8")
    if not counted:
        text = _changed(text, _UNCOUNTED)
    if pipeline:
        text = _changed(text, _PIPELINE if counted else _PIPELINE_UNCOUNTED)
    if rows:
        text = _changed(text, _ROWS)
    sizes = " x ".join(f"{axis}={size}" for axis, size in mesh.items())
    return Template(text).substitute(class_name=class_name, mesh=sizes, ranks=prod(mesh.values()))


def _changed(text: str, changes: Mapping[str, str]) -> str:
    for part, other in changes.items():
        if text.count(part) != 1:
            raise AssertionError(f"train.py.txt has {text.count(part)} times {part!r}")
        text = text.replace(part, other)
    return text
