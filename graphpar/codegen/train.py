"""train.py of a build: the training loop in plain sight, from the text beside this file."""

from collections.abc import Mapping
from importlib.resources import files
from math import prod
from string import Template


def train_program(class_name: str, mesh: Mapping[str, int]) -> str:
    """The text of train.py for the class `class_name` of the build's model.py."""
    template = Template(files("graphpar.codegen").joinpath("train.py.txt").read_text(encoding="utf-8"))
    sizes = " x ".join(f"{axis}={size}" for axis, size in mesh.items())
    return template.substitute(class_name=class_name, mesh=sizes, ranks=prod(mesh.values()))
