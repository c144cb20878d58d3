"""`moe`: which mesh axis the experts lie along, and how tokens come to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import cast

from graphpar.errors import Note
from graphpar.language.parse_layout import known_axes
from graphpar.language.reader import Listing, Mapping, Node, Scalar
from graphpar.language.scalars import Problems, Section, choice, number, section, word
from graphpar.language.schema import EXPERTS, Dispatch, MeshSpec, Moe, Tokens
from graphpar.notation import NAME_PATTERN

KEYS = (EXPERTS, "dispatch", "tokens", "capacity_factor", "group")
REQUIRED = {EXPERTS: "experts: ep"}
DISPATCH = ("alltoall", "allgather")
TOKENS = ("dropless", "capacity")
_FACTOR = "capacity_factor: 1.25"


def parse_moe(entry: tuple[Scalar, Node], mesh: MeshSpec | None, problems: Problems) -> Moe | None:
    """The experts, or None if it is not said which axis they lie along."""
    key, node = entry
    found = section(node, "`moe`", KEYS, problems)
    if not isinstance(node, Mapping):  # one mistake, and not also each key that is missing
        return None
    if EXPERTS not in found:
        problems.add("missing-key", key.span, "`moe` does not say its `experts`", fix=REQUIRED[EXPERTS])
    axis = _axis(found[EXPERTS][1], mesh, problems) if EXPERTS in found else None
    dispatch = choice(found["dispatch"][1], DISPATCH, problems) if "dispatch" in found else None
    tokens = choice(found["tokens"][1], TOKENS, problems) if "tokens" in found else "dropless"
    factor = None
    if "capacity_factor" in found:
        factor = number(found["capacity_factor"][1], "a capacity factor", problems, fix=_FACTOR)
    group = _group(found["group"][1], problems) if "group" in found else None
    if tokens is not None:
        _check_capacity(found, tokens, problems)
    if axis is None or tokens is None:
        return None
    written, proper = axis
    spans = {name: value.span for name, (_, value) in found.items()}
    return Moe(
        proper,
        cast("Dispatch", dispatch or "alltoall"),
        cast("Tokens", tokens),
        factor,
        group,
        written,
        found[EXPERTS][0].span,
        spans,
    )


def _check_capacity(found: Section, tokens: str, problems: Problems) -> None:
    """Room is said where tokens compete for it, and nowhere else."""
    if tokens == "capacity" and "capacity_factor" not in found:
        message = "`tokens: capacity` does not say its `capacity_factor`"
        why = "an expert takes so many tokens and no more, which changes the result: no number is right by default"
        problems.add("missing-key", found["tokens"][1].span, message, why=why, fix=f"tokens: capacity\n{_FACTOR}")
    default = "" if "tokens" in found else ", the default,"
    for name in ("capacity_factor", "group") if tokens == "dropless" else ():
        if name in found:
            message = f"`{name}` has no effect without `tokens: capacity`"
            why = f"under `tokens: dropless`{default} an expert takes every token that chose it: none compete for room"
            fix = f"delete `{name}`, or let tokens be dropped:\ntokens: capacity\n{_factor(found)}"
            problems.add("no-capacity", found[name][0].span, message, why=why, fix=fix)


def _factor(found: Section) -> str:
    given = found["capacity_factor"][1] if "capacity_factor" in found else None
    return f"capacity_factor: {given.text}" if isinstance(given, Scalar) and given.text else _FACTOR


def _axis(node: Node, mesh: MeshSpec | None, problems: Problems) -> tuple[str, str] | None:
    """The word that is written and the axis it stands for."""
    if isinstance(node, Listing):
        words = [item.text for item in node.items if isinstance(item, Scalar)]
        _several(node, [w for w in words if mesh is None or w in mesh.names], mesh, problems)
        return None
    text = word(node, "a mesh axis", problems, fix=REQUIRED[EXPERTS])
    if text is None or not isinstance(node, Scalar):
        return None
    if text == "none":
        message = "`none` is no mesh axis, and without `moe` every rank has all experts"
        problems.add("wrong-type", node.span, message, fix="delete `moe`")
        return None
    if mesh is None:
        return text, text
    if not known_axes([node], mesh.names, problems, mesh.span):
        return None
    axes = mesh.expand(text)
    if len(axes) > 1:
        _several(node, axes, mesh, problems)
    return (text, axes[0]) if len(axes) == 1 else None


def _several(node: Node, axes: Sequence[str], mesh: MeshSpec | None, problems: Problems) -> None:
    named = f"`{node.text}` stands for {' and '.join(axes)}" if isinstance(node, Scalar) else "this is a list"
    sizes = mesh.sizes() if mesh else {}
    notes: list[Note] = []
    if len(axes) > 1 and all(axis in sizes for axis in axes):
        product = " * ".join(f"{axis} {sizes[axis]}" for axis in axes)
        ranks = prod(sizes[axis] for axis in axes)
        notes = [
            Note(f"for {product} = {ranks} ranks, give the mesh one axis of {ranks}; all that these cut may name it")
        ]
    message = f"experts lie along one mesh axis in this version, and {named}"
    fix = f"experts: {axes[-1]}" if axes else REQUIRED[EXPERTS]
    problems.add("experts-axis", node.span, message, notes=notes, fix=fix)


def _group(node: Node, problems: Problems) -> str | None:
    text = word(node, "a dimension", problems, fix="group: batch")
    if text is not None and not re.fullmatch(NAME_PATTERN, text):
        why = "a name has lower-case letters, digits and _, then perhaps .0 or .half"
        problems.add("bad-name", node.span, f"`{text}` cannot be the name of a dimension", why=why)
        return None
    return text
