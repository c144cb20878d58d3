"""Sizes are read off values. A module that is given none to read one off is written where it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from graphpar.codegen.forward import NotMeasured
from graphpar.errors import Diagnostic, GraphparError, Span
from graphpar.ir.graph import Graph, plain

T = TypeVar("T")


def measured(write: Callable[[Mapping[str, str]], T], owner: Mapping[str, str], graph: Graph) -> T:
    """What `write` makes of the modules in whose bodies others are written.

    Raises GraphparError if a body lacks a size, and cannot be written elsewhere: a layer of a list, or the model.
    """
    while True:
        try:
            return write(owner)
        except NotMeasured as missing:
            owner = _in_its_caller(missing, owner, graph)


def _in_its_caller(missing: NotMeasured, owner: Mapping[str, str], graph: Graph) -> Mapping[str, str]:
    parent, _, part = missing.path.rpartition(".")
    if not missing.path or part.startswith("*") or plain(missing.path) in graph.recomputed:
        raise GraphparError(_not_apart(missing, graph))
    there = owner.get(parent, parent)  # the whole model may lack a path of a stage, in which blocks are other loops
    homes = {path: there if home == missing.path else home for path, home in owner.items()}
    return {**homes, missing.path: there}


def _not_apart(missing: NotMeasured, graph: Graph) -> Diagnostic:
    origin = next((n.origin for n in graph.nodes if n.origin.module == missing.path and n.origin.file), None)
    return Diagnostic(
        "size-not-apart",
        Span(origin.file, origin.line, 1, 1) if origin else None,
        f"nothing that `{plain(missing.path) or 'the model'}` is given has {missing.size} as a dimension of its own",
        why=("what it computes needs the number, which is another one on every rank and for every microbatch",),
        fix="give it what is [batch, seq, ..], and flatten that inside",
        kind="model",
    )
