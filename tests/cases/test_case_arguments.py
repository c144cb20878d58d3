"""Every argument of every op that graphpar has a word for is in the graph, or the op has no word."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
import torch

from graphpar.capture.aten.call import Call
from graphpar.capture.aten.table import TABLE
from graphpar.ir.graph import Node, Origin

HERE = Origin("", "source.py", 1)
# What is about storage, or is the result's own dtype or shape, which each node has.
STORAGE = {
    "layout",
    "device",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "copy",
    "requires_grad",
    "implicit",
    "dtype",
}
OF_THE_RESULT = {
    "size", "shape", "keepdim", "output_size", "split_size", "split_sizes", "chunks", "start_dim", "end_dim", "sizes",
    "cudnn_enable", "sparse", "step",
}  # fmt: skip
OTHER = {"float": [0.25, 0.75], "int": [1, 2], "bool": [False, True], "number": [2, 3], "Scalar": [2, 3]}


def tensor(name: str, dtype: str) -> Node:
    return Node("input", (), {"name": name}, (2, 4), dtype, HERE)


def values(argument: Any) -> list[Any]:
    """Two different values for an argument, of which the first is its default; one where it cannot differ."""
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    if kind not in OTHER:
        return []
    default = argument.default_value
    return [default, next(v for v in OTHER[kind] if v != default)]


def call(schema: Any, change: str, value: Any, dtype: str) -> Call:
    given: list[Any] = []
    words: dict[str, Any] = {}
    for argument in schema.arguments:
        kind = str(argument.type)
        if argument.name == change:
            one = value
        elif kind == "Tensor":
            one = tensor(argument.name, dtype)
        elif argument.has_default_value():
            one = argument.default_value
        else:
            two = [tensor("a", dtype), tensor("b", dtype)]
            one = {
                "List[int]": [1],
                "Optional[List[int]]": [1],
                "List[Tensor]": two,
                "List[Optional[Tensor]]": two[:1],
            }.get(kind, 1)
        if argument.kwarg_only:
            words[argument.name] = one
        else:
            given.append(one)
    shape = (sympy.Integer(2), sympy.Integer(4))
    several = len(schema.returns) > 1 or str(schema.returns[0].type) == "List[Tensor]"
    parts = ((shape, dtype),) * 2 if several else ()
    name = f"aten.{schema.name[6:]}.{schema.overload_name or 'default'}"
    return Call(name, tuple(given), words, shape, dtype, HERE, parts)


def schema_of(target: str) -> Any:
    _, name, overload = target.split(".")
    return getattr(getattr(torch.ops.aten, name), overload)._schema


OURS = [target for target in TABLE if target.startswith("aten.")]  # a library's own ops have no defaults here


CASES = [
    pytest.param(target, argument, id=f"{target}-{argument.name}")
    for target in OURS
    for argument in schema_of(target).arguments
    if argument.has_default_value() and argument.name not in STORAGE | OF_THE_RESULT and values(argument)
]


@pytest.mark.parametrize(("target", "argument"), CASES)
def test_another_argument_is_another_op(target: str, argument: Any) -> None:
    schema = schema_of(target)
    dtype = "bool" if target.startswith(("aten.logical", "aten.bitwise")) else "float32"
    usual, other = (TABLE[target](call(schema, argument.name, value, dtype)) for value in values(argument))
    assert usual != other, f"{argument.name} is dropped"
