"""From a model and a spec to a build: the whole compiler."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sympy
from torch import nn

from graphpar import __version__, library
from graphpar.capture.capture import BATCH, SEQ, Captured, Signature, capture
from graphpar.codegen import loss as losses
from graphpar.codegen.measured import measured
from graphpar.codegen.module import module
from graphpar.codegen.parts import Part
from graphpar.codegen.plan import digest, plan
from graphpar.codegen.program import Program
from graphpar.codegen.quoted import quoted
from graphpar.codegen.stages import add_pipeline, in_stages, pipelined
from graphpar.codegen.train import train_program
from graphpar.codegen.tree import build, owners
from graphpar.errors import Diagnostic, GraphparError, Span, raise_if_any
from graphpar.ir import verify
from graphpar.ir.graph import Graph, Node
from graphpar.language.dump import dump_spec
from graphpar.language.schedules import SCHEDULES
from graphpar.language.schema import Spec
from graphpar.names.declared import Declared
from graphpar.names.named import Named, name
from graphpar.pipeline.check import check_stages
from graphpar.pipeline.cut import cut, sent
from graphpar.pipeline.cutting import Cutting, resolve
from graphpar.pipeline.file import spell_order
from graphpar.place.bodies import split_bodies
from graphpar.place.check import check_named, check_placed
from graphpar.place.layout import Layout, cut_loops
from graphpar.place.place import Placed, place
from graphpar.place.recompute import mark_recomputed
from graphpar.rewrite.almost import almost
from graphpar.rewrite.capacity import with_capacity
from graphpar.rewrite.steps import Watch, unwatched

BEFORE = ("unsorted", "gathered", "experts", "positions", "broadcast", "canonical")
AFTER = ("hoist",)
FEW = 5  # mistakes of a pass that are shown


@dataclass(frozen=True)
class Build:
    """A compiled program: the files of the build by name, the plan, and what it was made from."""

    files: Mapping[str, str]
    plan: Mapping[str, Any]
    named: Named
    placed: Placed
    program: Program
    cutting: Cutting | None = None

    def write(self, folder: Path) -> None:
        """Write every file into `folder`, which is made if need be."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in self.files.items():
            (folder / file).write_text(text, encoding="utf-8")


def simplify(
    graph: Graph, passes: Sequence[str] = BEFORE, folders: Sequence[Path] = (), watch: Watch = unwatched
) -> Graph:
    """Run passes in order. Raises GraphparError if one of them leaves what is no graph."""
    for word in passes:
        rewrite = library.load_pass(word, folders)
        graph = getattr(rewrite, word)(graph)
        if found := verify.problems(graph):
            raise GraphparError(_breaks(word, str(rewrite.__file__), found))
        watch(word, rewrite.__name__, graph)
    return graph


def _breaks(word: str, file: str, found: Sequence[str]) -> Diagnostic:
    return Diagnostic(
        "pass-breaks-graph",
        Span(file, 1, 1),
        f"pass `{word}` leaves what is no graph",
        why=tuple(found[:FEW]) + ((f"and {len(found) - FEW} more",) if len(found) > FEW else ()),
        fix="graphpar.ir.graph.rebuild keeps operands before what reads them",
        kind="model",
    )


def own_passes(folders: Sequence[Path]) -> list[str]:
    """The passes in the user's folders, in the order of their names: they run between graphpar's own and placement."""
    shipped = set(library.passes())
    return sorted(set(library.passes(folders)) - shipped)


def compile_model(
    construct: Callable[[], nn.Module],
    signature: Signature,
    spec: Spec,
    source: Mapping[str, Any],
    folders: Sequence[Path] = (),
) -> Build:
    """Compile a model for a spec whose mesh has known sizes.

    Raises GraphparError with everything that is wrong with the spec for this model.
    """
    return compile_captured(capture(construct, signature), spec, source, folders)


def compile_captured(
    captured: Captured,
    spec: Spec,
    source: Mapping[str, Any],
    folders: Sequence[Path] = (),
    watch: Watch = unwatched,
) -> Build:
    """Compile what is captured already; `watch` is told of every step."""
    graph = simplify(captured.graph, (*BEFORE, *own_passes(folders)), folders, watch)
    raise_if_any(almost(graph, spec))
    graph = with_capacity(graph, spec, BATCH)
    watch("capacity", with_capacity.__module__, graph)
    graph = cut_loops(graph, spec)
    watch("bodies", split_bodies.__module__, graph)
    named = name(graph, Declared.of(spec))
    raise_if_any(check_named(named, spec))
    watch("names", name.__module__, named.graph)
    named = replace(named, graph=mark_recomputed(named.graph, spec))
    watch("recompute", mark_recomputed.__module__, named.graph)
    cutting = resolve(spec, named.graph) if spec.pipeline else None
    crossing = sent(named.graph, cutting.path, cutting.layers, cutting.modules) if cutting else frozenset[Node]()
    layout = Layout(spec, named, spec.mesh.sizes(), crossing)
    placed = place(layout)
    raise_if_any(check_placed(placed))
    watch("place", place.__module__, placed.graph)
    graph = losses.divide_by_count(simplify(placed.graph, AFTER, folders, watch))
    watch("count", losses.__name__, graph)
    program = Program(graph, layout.mesh, layout.order, graph.users(), spec.numerics.rng == "exact")
    source = {**source, "graphpar": __version__, "spec": digest(dump_spec(spec))}
    bounds = [a.condition for a in captured.assumptions]
    document, text = measured(
        lambda owner: _write(program, owner, named, spec, cutting, source, bounds), owners(named.graph), graph
    )
    files = {
        "model.py": text,
        "train.py": train_program(
            document["class"],
            layout.mesh,
            counted=document["count"],
            pipeline=cutting is not None,
            rows=document["labels"] == "row",
        ),
        "plan.json": json.dumps(document, indent=1) + "\n",
        "init.json": json.dumps(captured.built.tape) + "\n",
        "spec.yaml": dump_spec(_with_own_schedule(spec)),
        **({"schedule.csv": spell_order(cutting.order)} if cutting else {}),
    }
    return Build(files, document, named, placed, program, cutting)


def _write(
    program: Program,
    owner: Mapping[str, str],
    named: Named,
    spec: Spec,
    cutting: Cutting | None,
    source: Mapping[str, Any],
    bounds: Sequence[Any],
) -> tuple[dict[str, Any], str]:
    """plan.json and model.py. `bounds` are what the model demands of batch and seq."""
    graph = program.graph
    whole = Part(build(graph, owner), program)
    found = losses.labels(graph)
    extra = losses.count_method(graph, program, found) if found else []
    document = plan(graph, whole.root, program, named, spec, found, source)
    document["max_seq"] = _longest([document["max_seq"], *bounds])
    header = _header(document, source, cutting)
    if cutting and spec.pipeline:
        stages = cut(graph, cutting.path, cutting.layers, cutting.modules)
        raise_if_any(check_stages(stages, cutting, spec, adds_up=document["adds_up"]))
        made = pipelined(stages, program, cutting, owner)
        text = in_stages(made, document["class"], header, extra)
        add_pipeline(document, made, text.roots, spec.pipeline)
    else:
        text = module([whole], header, extra=extra)
    document["lines"] = text.sources
    document["quoted"] = quoted(node.origin for node in graph.nodes)
    return document, text.text


def _with_own_schedule(spec: Spec) -> Spec:
    """The spec of the build: a schedule from a file is a file of the build."""
    pipeline = spec.pipeline
    if pipeline is None or pipeline.schedule in SCHEDULES:
        return spec
    return replace(spec, pipeline=replace(pipeline, schedule="schedule.csv"))


def _longest(bounds: Sequence[Any]) -> int | None:
    """The longest sequence that position tables and the model's own checks allow."""
    limits = [b for b in bounds if isinstance(b, int) and not isinstance(b, bool)]
    conditions = [b for b in bounds if isinstance(b, sympy.Basic) and b.free_symbols == {SEQ}]
    return min([*limits, *(n for c in conditions if (n := _limit(c)) is not None)], default=None)


def _limit(condition: sympy.Basic) -> int | None:
    """The last length for which a condition holds, of one that holds up to some length and not beyond it."""

    def holds(length: int) -> bool:
        return condition.subs(SEQ, length) == sympy.true

    least, most = 2, 1 << 24
    if holds(most) or not holds(least):
        return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if holds(middle) else (least, middle)
    return least


def _header(document: Mapping[str, Any], source: Mapping[str, Any], cutting: Cutting | None) -> str:
    mesh = " x ".join(f"{a}={n}" for a, n in document["mesh"].items())
    ranks = _product(document["mesh"].values())
    parameters = list(document["parameters"].values())
    cut = [p for p in parameters if p["sharded"]]
    share = 100 * _total(cut) / max(_total(parameters), 1)
    dims = "  ".join(f"{word} {size}" for word, size in document["dims"].items() if size is not None)
    title = f"{document['class']} on mesh {mesh} ({ranks} ranks), written by graphpar from"
    stages = f"\n    stages   {_stages(cutting)}" if cutting else ""
    return f'''"""{title} {source["model"]} and {source["spec_file"]}.

    layout   {"  ".join(document["layout"])}
    sizes    {dims}
    reading  `seq@tp` is this rank's part of seq; `partial(tp)` is a sum still to be taken over tp
    sharded  {len(cut)} of {len(parameters)} parameters, {share:.0f} % of the elements{stages}

The same text runs on every rank. Parameters have the names of the source model. Yours to read, run and edit.
"""
'''


def _stages(cutting: Cutting) -> str:
    layers = " | ".join(f"{r.start}:{r.stop}" for r in cutting.layers)
    return f"{cutting.path} {layers} along {cutting.axis}, {cutting.schedule}, {cutting.microbatches} microbatches"


def _total(parameters: Sequence[Mapping[str, Any]]) -> int:
    return sum(_product(p["shape"]) for p in parameters)


def _product(numbers: Iterable[int]) -> int:
    total = 1
    for n in numbers:
        total *= n
    return total
