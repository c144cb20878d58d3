"""What Python's own operators and functions do to numbers, and which rule they stand for on tensors."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("subtract", operator.sub),
    ast.Mult: ("multiply", operator.mul),
    ast.Div: ("divide", operator.truediv),
    ast.FloorDiv: ("floor", operator.floordiv),
    ast.Mod: ("modulo", operator.mod),
    ast.Pow: ("power", operator.pow),
    ast.MatMult: ("matmul", operator.matmul),
    ast.BitAnd: ("and", operator.and_),
    ast.BitOr: ("or", operator.or_),
}
UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("neg", operator.neg),
    ast.Invert: ("invert", operator.invert),
    ast.Not: ("invert", operator.not_),
}
OPAQUE = ("device", "dtype")  # of a tensor: the same on every rank, and no rule asks
CONSTANTS = {
    "float": float,
    "int": int,
    "range": range,
    "len": len,
    "min": min,
    "max": max,
    "zip": zip,
    "enumerate": enumerate,
    "str": str,
    "round": round,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
}
MODULE_DICT = "torch.nn.ModuleDict"
