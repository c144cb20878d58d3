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


def train_program(class_name: str, mesh: Mapping[str, int], *, counted: bool = True) -> str:
    """The text of train.py for the class `class_name` of the build's model.py.

    `counted` says whether the model is given the number of labels that its loss is divided by.
    """
    text = files("graphpar.codegen").joinpath("train.py.txt").read_text(encoding="utf-8")
    template = Template(text if counted else _uncounted(text))
    sizes = " x ".join(f"{axis}={size}" for axis, size in mesh.items())
    return template.substitute(class_name=class_name, mesh=sizes, ranks=prod(mesh.values()))


def _uncounted(text: str) -> str:
    for line, other in _UNCOUNTED.items():
        if text.count(line) != 1:
            raise AssertionError(f"train.py.txt has {text.count(line)} times {line!r}")
        text = text.replace(line, other)
    return text
