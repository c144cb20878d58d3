"""Where a model is cut into stages, on which rank each of them lies, and in which order they run.

A spec says it in words (`language.schema.Pipeline`); here the words meet the modules of one model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphpar.errors import raise_if_any
from graphpar.ir.graph import Graph
from graphpar.language.check_pipeline import check_pipeline, too_many_stages
from graphpar.language.schedules import SCHEDULES
from graphpar.language.schema import Pipeline, Spec
from graphpar.pipeline.costs import LayerCosts, costs
from graphpar.pipeline.file import read_order
from graphpar.pipeline.listed import list_of_layers, listed, out_of_order
from graphpar.pipeline.partition import balanced
from graphpar.schedules.actions import Order, homes
from graphpar.schedules.clock import Costs, Timeline, clock
from graphpar.schedules.orders import order


@dataclass(frozen=True)
class Cutting:
    """The stages of one model.

    `layers` are the members of the list at `path` by stage, `modules` the stages of further modules that the spec
    names, `ranks` the coordinate of each stage along `axis`. `work` are the operations of each stage's forward on one
    sequence, and `timeline` says when each action runs if it takes as long as it has operations.
    """

    axis: str
    path: str
    layers: tuple[range, ...]
    modules: Mapping[str, int]
    ranks: tuple[int, ...]
    order: Order
    microbatches: int
    schedule: str
    work: tuple[float, ...]
    timeline: Timeline


def resolve(spec: Spec, graph: Graph) -> Cutting:
    """The stages that a spec with a pipeline makes of a model; the size of the pipeline's axis must be known.

    Raises GraphparError with all that keeps the two from fitting.
    """
    pipeline = spec.pipeline
    assert pipeline is not None
    raise_if_any(check_pipeline(spec))
    size = spec.mesh.sizes()[pipeline.axis]
    made = _order(spec, pipeline, size)
    ranks = tuple(rank for _, rank in sorted(homes(made).items()))
    path = list_of_layers(pipeline, graph)
    found = costs(graph, path)
    modules: dict[str, int] = {}
    if pipeline.stages is None:
        raise_if_any(too_many_stages(spec, size, len(ranks), len(found.layers)))
        layers = balanced(found.layers, len(ranks), found.before, found.behind)
    else:
        layers, modules = listed(pipeline, path, graph, len(ranks), size)
    raise_if_any(out_of_order(pipeline, graph, path, layers, modules))
    work = _work(found, layers)
    return Cutting(
        pipeline.axis, path, layers, modules, ranks, made, pipeline.microbatches, pipeline.schedule,
        work, clock(made, Costs.by_work(work)),
    )  # fmt: skip


def _order(spec: Spec, pipeline: Pipeline, ranks: int) -> Order:
    if pipeline.schedule in SCHEDULES:
        return order(pipeline.schedule, ranks, pipeline.virtual, pipeline.microbatches)
    return read_order(spec, ranks)


def _work(found: LayerCosts, layers: Sequence[range]) -> tuple[float, ...]:
    """Of each stage, with what the model does before its first layer and behind its last one."""
    work = [sum((found.layers[i] for i in piece), 0.0) for piece in layers]
    work[0] += found.before
    work[-1] += found.behind
    return tuple(work)
