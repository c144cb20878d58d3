"""SPEC on the command line: a file, or the name of a spec that graphpar ships."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graphpar import library
from graphpar.errors import GraphparError, Note, raise_if_any
from graphpar.language.check_pipeline import check_pipeline
from graphpar.language.mesh import resolve_rest
from graphpar.language.parse import load_spec
from graphpar.language.schema import Spec


def read_spec(text: str) -> Spec:
    """Read a spec. Raises GraphparError with every mistake that shows without a model."""
    looks_like_a_file = "/" in text or text.endswith((".yaml", ".yml"))
    return load_spec(text if Path(text).exists() or looks_like_a_file else library.find_spec(text))


def with_ranks(spec: Spec, world: int | None) -> Spec:
    """The spec with a number on every mesh axis. Raises GraphparError if `world` ranks do not fit."""
    try:
        found = replace(spec, mesh=resolve_rest(spec.mesh, world))
    except GraphparError as error:
        if world is not None:
            raise
        note = Note("`--world N` gives the number of ranks")
        raise GraphparError(replace(d, notes=(*d.notes, note)) for d in error.diagnostics) from None
    raise_if_any(check_pipeline(found))
    return found
