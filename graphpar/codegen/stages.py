"""The stages of a pipeline in a build: their classes, the model that holds those of a rank, and what the plan says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphpar.codegen.classes import Class
from graphpar.codegen.module import Text, module
from graphpar.codegen.parts import Part
from graphpar.codegen.plan import collectives
from graphpar.codegen.plan_causes import place_of
from graphpar.codegen.program import Program
from graphpar.codegen.tree import build, owners
from graphpar.ir.graph import Graph, Node
from graphpar.language.schema import Pipeline
from graphpar.pipeline.cut import Stage
from graphpar.pipeline.cutting import Cutting
from graphpar.schedules.actions import spell


@dataclass(frozen=True)
class Pipelined:
    """A pipeline's stages and their programs."""

    cutting: Cutting
    stages: tuple[Stage, ...]
    parts: tuple[Part, ...]

    def holders(self) -> dict[str, tuple[int, ...]]:
        """For each parameter and buffer of the source, the stages that hold it."""
        found: dict[str, list[int]] = {}
        for s, stage in enumerate(self.stages):
            for name in held(stage.graph):
                found.setdefault(name, []).append(s)
        return {name: tuple(stages) for name, stages in found.items()}

    def shared(self) -> dict[str, tuple[int, ...]]:
        """The trainable parameters that several places along the axis hold, with these places."""
        places = {n: tuple(sorted({self.cutting.ranks[s] for s in stages})) for n, stages in self.holders().items()}
        trained = {m for s in self.stages for m in held(s.graph, ("parameter",)) if s.graph.tensors[m].trainable}
        return {name: p for name, p in places.items() if len(p) > 1 and name in trained}


def pipelined(stages: Sequence[Stage], program: Program, cutting: Cutting, owner: Mapping[str, str]) -> Pipelined:
    """The stages as parts of a text; `owner` says where the modules of the whole model are written."""
    parts = tuple(_part(s, stage, len(stages), program, cutting.path, owner) for s, stage in enumerate(stages))
    return Pipelined(cutting, tuple(stages), parts)


def in_stages(made: Pipelined, name: str, header: str, extra: Sequence[str]) -> Text:
    """The text of model.py: the classes of the stages, then that of the model. `extra` are lines of its methods."""
    return module(made.parts, header, closing=lambda classes: _model(name, made, classes, extra))


def held(graph: Graph, ops: Sequence[str] = ("parameter", "buffer")) -> list[str]:
    """The source's names of the parameters and buffers of a graph."""
    return [m for n in graph.nodes if n.op in ops for m in graph.members(n.attrs["name"])]


def _part(s: int, stage: Stage, count: int, program: Program, path: str, owner: Mapping[str, str]) -> Part:
    graph = stage.graph
    own = replace(program, graph=graph, users=graph.users())
    suffix = "Stage" if count == 1 else "First" if s == 0 else "Last" if s == count - 1 else "Middle"
    return Part(build(graph, _homes(graph, owner)), own, path, suffix, s)


def _homes(graph: Graph, owner: Mapping[str, str]) -> dict[str, str]:
    """Where the modules of a stage are written, in which alike blocks may be a loop that the whole model has not."""
    homes = {**owners(graph), **owner}

    def home(path: str) -> str:
        there = homes.get(path, path)
        return there if there == path else home(there)

    return {path: home(path) for path in homes}


def _model(name: str, made: Pipelined, classes: Sequence[str], extra: Sequence[str]) -> Class:
    """Its class: which rank has which stages, and which parameters several of them have."""
    lines = [
        "    def __init__(self, mesh: Mesh) -> None:",
        "        super().__init__(",
        "            mesh,",
        f'            "{made.cutting.axis}",',
        f"            [  # the place along {made.cutting.axis} of each stage, and how it is made",
        *(f"                {_entry(made, s, cls)}," for s, cls in enumerate(classes)),
        "            ],",
        *_shared(made.shared()),
        "        )",
        *(["", *extra] if extra else []),
    ]
    doc = "the stages of a rank; schedule.csv says what it runs when"
    return Class(name, name, [doc], lines, {"Stages"}, [None] * len(lines), base="Stages")


def _entry(made: Pipelined, s: int, cls: str) -> str:
    layers = made.stages[s].layers
    given = f"mesh, range({layers.start}, {layers.stop})" if made.parts[s].is_given_layers("") else "mesh"
    return f"({made.cutting.ranks[s]}, lambda: {cls}({given}))"


def _shared(shared: Mapping[str, tuple[int, ...]]) -> list[str]:
    if not shared:
        return []
    return [
        "            shared={  # parameters that several ranks hold: their gradients are one",
        *(f'                "{name}": {places},' for name, places in shared.items()),
        "            },",
    ]


def add_pipeline(document: dict[str, Any], made: Pipelined, classes: Sequence[str], asked: Pipeline) -> None:
    """Add to plan.json what it says of a pipeline that a spec asks for.

    Shapes are those of one microbatch on one rank; the `work` of a stage is that of one sequence's forward, in
    operations.
    """
    holders = made.holders()
    for kind in ("parameters", "buffers"):
        for name, entry in document[kind].items():
            entry["stages"] = list(holders[name])
    document["pipeline"] = {
        "axis": made.cutting.axis,
        "rule": {"text": f"axis: {asked.axis}", "line": asked.spans.get("axis", asked.span).line},
        "layers": made.cutting.path,
        "schedule": made.cutting.schedule,
        "microbatches": made.cutting.microbatches,
        "stages": [_stage(made, s, cls) for s, cls in enumerate(classes)],
        "order": {str(rank): [spell(step) for step in steps] for rank, steps in made.cutting.order.items()},
        "shared": {name: list(places) for name, places in made.shared().items()},
    }


def _stage(made: Pipelined, s: int, cls: str) -> dict[str, Any]:
    stage, part = made.stages[s], made.parts[s]
    behind = () if stage.last else made.stages[s + 1].received
    return {
        "class": cls,
        "rank": made.cutting.ranks[s],
        "layers": [stage.layers.start, stage.layers.stop],
        "work": made.cutting.work[s],
        "inputs": list(stage.inputs),
        "sends": [_value(n, there.attrs["grad"], part.program) for n, there in zip(stage.sends, behind, strict=True)],
        "collectives": collectives(part.root, part.program),
    }


def _value(node: Node, grad: bool, program: Program) -> dict[str, Any]:
    local = program.cuts(node)
    shape = [str(local.axis(a)) for a in node.named]
    where = place_of(_computed(node).origin)
    return {"axes": program.shape(node), "shape": shape, "dtype": node.dtype, "grad": grad, **where}


def _computed(node: Node) -> Node:
    """The op behind a value that a loop carries."""
    while node.op in ("loop_leave", "loop_enter"):
        node = node.operands[-1]
    return node
