"""`pipeline`: which mesh axis runs stages, what they consist of, and in which order they run microbatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphpar.errors import GraphparError, suggestions
from graphpar.language.reader import Listing, Mapping, Node, Scalar
from graphpar.language.scalars import Problems, choice, integer, kind_of, section, word
from graphpar.language.schedules import SCHEDULES
from graphpar.language.schema import MeshSpec, Pipeline, Tied
from graphpar.language.selectors import Selector, parse_selectors

KEYS = ("axis", "layers", "stages", "virtual", "schedule", "microbatches", "of", "tied")
REQUIRED = {"axis": "axis: pp", "schedule": "schedule: 1f1b", "microbatches": "microbatches: 8"}


def parse_pipeline(node: Node, mesh: MeshSpec | None, problems: Problems) -> Pipeline | None:
    """The pipeline, or None if it is not said what it needs most."""
    found = section(node, "`pipeline`", KEYS, problems)
    if not isinstance(node, Mapping):  # one mistake, and not also each key that is missing
        return None
    for key, fix in REQUIRED.items():
        if key not in found:
            problems.add("missing-key", node.span, f"`pipeline` does not say its `{key}`", fix=fix)

    def read(key: str, how: Callable[[Node], object]) -> object:
        return how(found[key][1]) if key in found else None

    axis = cast("str | None", read("axis", lambda n: _axis(n, mesh, problems)))
    schedule = cast("str | None", read("schedule", lambda n: _schedule(n, problems)))
    microbatches = cast("int | None", read("microbatches", lambda n: integer(n, "a number of microbatches", problems)))
    layers = cast("tuple[Selector, ...] | None", read("layers", lambda n: _list(n, problems)))
    stages = cast("tuple[tuple[Selector, ...], ...] | None", read("stages", lambda n: _stages(n, problems)))
    virtual = cast("int | None", read("virtual", lambda n: integer(n, "a number of stages on each rank", problems)))
    read("of", lambda n: choice(n, ("batch",), problems))
    tied = cast("Tied | None", read("tied", lambda n: choice(n, ("allreduce", "same_stage"), problems)))
    if axis is None or schedule is None or microbatches is None:
        return None
    spans = {key: value.span for key, (_, value) in found.items()}
    usual = SCHEDULES[schedule].usual if schedule in SCHEDULES else 1
    chosen = layers[0] if layers else parse_selectors("layers", node.span)[0]
    return Pipeline(
        axis, chosen, stages, virtual or usual, schedule, microbatches, tied or "allreduce", node.span, spans
    )


def _axis(node: Node, mesh: MeshSpec | None, problems: Problems) -> str | None:
    text = word(node, "a mesh axis", problems)
    if text is None or mesh is None:
        return text
    axes = mesh.expand(text) if text in mesh.names else ()
    if len(axes) == 1:
        return axes[0]
    if axes:
        message = f"`{text}` stands for several axes, and stages lie along one"
        why = f"`{text}` is {' and '.join(axes)}"
        problems.add("pipeline-axis", node.span, message, why=why, fix=f"axis: {axes[0]}")
        return None
    near = suggestions(text, mesh.names)
    problems.add(
        "unknown-mesh-axis",
        node.span,
        f"`{text}` is no axis of the mesh",
        why=f"the mesh has {' '.join(mesh.names)}",
        fix=f"axis: {near[0] if near else mesh.names[0]}",
    )
    return None


def _schedule(node: Node, problems: Problems) -> str | None:
    """One of the names, or a file in torch's form, as written."""
    if isinstance(node, Scalar) and node.text.endswith(".csv"):
        return word(node, "a schedule", problems)
    return choice(node, tuple(SCHEDULES), problems)


def _stages(node: Node, problems: Problems) -> tuple[tuple[Selector, ...], ...] | None:
    if isinstance(node, Scalar):
        choice(node, ("balanced",), problems)
        return None
    if not isinstance(node, Listing):
        problems.add("wrong-type", node.span, f"`stages` is a list, not {kind_of(node)}", fix="stages: balanced")
        return None
    return tuple(_selectors(item, "stages", problems) for item in node.items)


def _list(node: Node, problems: Problems) -> tuple[Selector, ...]:
    found = _selectors(node, "layers", problems)
    if len(found) > 1 or (found and found[0].kind != "module"):
        message = "`layers` is one list of modules, whose members the stages share out"
        problems.add("wrong-type", node.span, message, fix=f"layers: {found[0] if len(found) > 1 else 'layers'}")
    return found


def _selectors(node: Node, key: str, problems: Problems) -> tuple[Selector, ...]:
    text = word(node, "a selector", problems, fix=f"{key}: layers")
    if text is None:
        return ()
    try:
        return parse_selectors(text, node.at(0, len(text)) if isinstance(node, Scalar) else node.span)
    except GraphparError as error:
        problems.found += error.diagnostics
        return ()
