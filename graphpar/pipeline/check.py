"""What keeps a model from being run in the stages that it was cut into."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphpar.errors import Diagnostic, Note
from graphpar.ir.graph import Graph, Node
from graphpar.language.check_pipeline import span_of
from graphpar.language.schema import Pipeline, Spec
from graphpar.pipeline.cut import Stage, pending
from graphpar.pipeline.cutting import Cutting
from graphpar.pipeline.tied import check_tied
from graphpar.schedules.actions import every


def check_stages(stages: Sequence[Stage], cutting: Cutting, spec: Spec, *, adds_up: bool) -> list[Diagnostic]:
    """All of it. `adds_up` says whether the loss of a batch is the sum of those of its parts."""
    pipeline = spec.pipeline
    assert pipeline is not None
    found = check_tied([_read(stage.graph) for stage in stages], cutting.ranks, spec)
    found += [_pending(node, pipeline) for node in pending(stages)]
    if cutting.microbatches > 1 and not adds_up:
        found.append(_one_batch(pipeline))
    if spec.numerics.rng == "exact":
        found += list(_exact(stages, pipeline))
    if any(stage.graph.recomputed for stage in stages):
        found += list(_halves(cutting, spec, pipeline))
    return found


def _read(graph: Graph) -> set[str]:
    return {m for n in graph.nodes if n.op == "parameter" for m in graph.members(n.attrs["name"])}


def _pending(node: Node, pipeline: Pipeline) -> Diagnostic:
    axes = [axis for axis, state in (node.state or {}).items() if str(state) == "P"]
    return Diagnostic(
        "pending-sum",
        pipeline.span,
        f"{node.origin} is still to be summed over {' '.join(axes)} where the model is cut",
        why=("a stage sends what is whole or a part, not a summand",),
        fix=f"regions:\n  - at: {node.origin.module or pipeline.layers}\n    only: true   # no rule, so whole",
    )


def _one_batch(pipeline: Pipeline) -> Diagnostic:
    return Diagnostic(
        "loss-of-a-batch",
        span_of(pipeline, "microbatches"),
        f"the loss is made of a whole batch, and {pipeline.microbatches} microbatches would change it",
        why=("the losses of the parts of a batch do not add up to the loss of the batch",),
        fix="microbatches: 1",
    )


def _halves(cutting: Cutting, spec: Spec, pipeline: Pipeline) -> Iterator[Diagnostic]:
    """A backward in two halves would run the forward again for each parameter: torch asks for one after another."""
    if any(action.kind == "W" for _, action in every(cutting.order)):
        region = next(region for region in spec.regions if region.recompute)
        yield Diagnostic(
            "recompute-in-halves",
            region.span,
            f"`recompute` is not available with `{cutting.schedule}`, which runs a backward in two halves",
            why=("each half would run the forward again, and that of the weights once for each of them",),
            notes=(Note("the schedule", span_of(pipeline, "schedule")),),
            fix="schedule: 1f1b   # or interleaved",
        )


def _exact(stages: Sequence[Stage], pipeline: Pipeline) -> Iterator[Diagnostic]:
    """Masks of one device: it draws those of a whole batch, layer by layer, and no stage does."""
    drops = [n for stage in stages for n in stage.graph.nodes if n.op == "dropout" or n.attrs.get("dropout")]
    if drops:
        yield Diagnostic(
            "not-available",
            pipeline.span,
            "`rng: exact` is not available with a pipeline",
            why=(
                f"the model drops at {drops[0].origin}",
                "one device draws a mask for a whole batch after those of all layers before it",
            ),
            fix="numerics: {rng: statistical}",
        )
