"""The stages of a pipeline, as its model lists them, against the plan: what each holds, is given and sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphpar.check.dims import Wrong, length
from graphpar.check.interpret import Finding, Interpreter
from graphpar.check.program import Module
from graphpar.check.value import Value

Entries = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Part:
    """A module that runs by itself: the model, or a stage. `sends` are the plan's words for what the next one gets."""

    module: Module
    reads: tuple[str, ...]
    holds: Entries = field(default_factory=dict[str, Mapping[str, Any]])
    sends: Sequence[Mapping[str, Any]] | None = None

    @classmethod
    def whole(cls, model: Module, plan: Mapping[str, Any]) -> Part:
        """A model without stages."""
        names = [entry["name"] for entry in plan["inputs"]] + (["count"] if plan["count"] else [])
        return cls(model, tuple(names), {**plan["parameters"], **plan["buffers"]})


def in_stages(interpreter: Interpreter, model: Module, plan: Mapping[str, Any]) -> tuple[list[Part], list[Finding]]:
    """The parts of a model, and where its list of stages is not the plan's."""
    line = interpreter.text.classes[model.cls]["__init__"].lineno
    planned = plan["pipeline"]["stages"]
    try:
        _, axis, listed, shared = _given(model)
        _check("axis", axis, plan["pipeline"]["axis"])
        _check("number of stages", len(listed), len(planned))
        wanted = {name: tuple(places) for name, places in plan["pipeline"]["shared"].items()}
        _check("parameters that several ranks hold", shared, wanted)
        parts: list[Part] = []
        for s, ((rank, made), stage) in enumerate(zip(listed, planned, strict=True)):
            _check(f"rank of stage {s}", rank, stage["rank"])
            module = interpreter.make(made)
            _check(f"class of stage {s}", module.cls, stage["class"])
            parts.append(Part(module, tuple(stage["inputs"]), _held(plan, s), _sends(planned, s)))
    except (Wrong, ValueError, TypeError) as wrong:
        return [], [Finding(line, 1, str(wrong), followed=True)]
    return parts, []


def _given(model: Module) -> tuple[Any, Any, Any, Any]:
    args, words = model.attributes.pop("super().__init__", ((), {}))
    if len(args) != 3 or set(words) - {"shared"}:
        raise Wrong(f"{model.cls} does not give its stages as (mesh, axis, stages, shared=..)")
    return *args, words.get("shared", {})


def _check(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Wrong(f"the {what} is {found} here, and {wanted} in the plan")


def _held(plan: Mapping[str, Any], stage: int) -> Entries:
    every = {**plan["parameters"], **plan["buffers"]}
    return {name: entry for name, entry in every.items() if stage in entry["stages"]}


def _sends(planned: Sequence[Mapping[str, Any]], stage: int) -> Sequence[Mapping[str, Any]] | None:
    return planned[stage]["sends"] if stage + 1 < len(planned) else None


def sent_as_planned(part: Part, sent: Sequence[Any], size: Callable[[str], float]) -> None:
    """Raise Wrong unless a part sends what the plan says: as many values, of these shapes, with their sums taken.

    `size` gives the number that an expression in batch and seq stands for.
    """
    if part.sends is None:
        return
    if len(sent) != len(part.sends):
        raise Wrong(f"{len(sent)} values are sent, and {len(part.sends)} in the plan")
    for number, (value, planned) in enumerate(zip(sent, part.sends, strict=True)):
        if not isinstance(value, Value):
            return
        if value.partial:
            raise Wrong(f"value {number} is sent while it is still to be summed over {' '.join(sorted(value.partial))}")
        wanted = [size(text) for text in planned["shape"]]
        if [length(dim) for dim in value.dims] != wanted:
            raise Wrong(f"value {number} is sent as {value}, and as {planned['axes']} in the plan")
        if value.grad != planned["grad"]:
            raise Wrong(f"value {number} is sent {'with' if value.grad else 'without'} a gradient, unlike in the plan")
