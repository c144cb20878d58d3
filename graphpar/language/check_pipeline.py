"""A pipeline against its mesh, its layout and its schedule: what shows without a model."""

from __future__ import annotations

from collections.abc import Iterable

from graphpar.errors import Diagnostic, Note, Span
from graphpar.language.schedules import MANY, SCHEDULES
from graphpar.language.schema import LayoutRule, Pipeline, Spec


def check_pipeline(spec: Spec) -> tuple[Diagnostic, ...]:
    """Everything in a pipeline that cannot be. Numbers are left alone while the size of its axis is `rest`."""
    pipeline = spec.pipeline
    if pipeline is None:
        return ()
    found = list(_virtual(pipeline))
    ranks = spec.mesh.sizes().get(pipeline.axis)
    if ranks is not None and pipeline.schedule in SCHEDULES and not found:
        found = [*_microbatches(pipeline, ranks), *_count(pipeline, ranks)]
    return (*_layout(spec, pipeline), *found)


def _layout(spec: Spec, pipeline: Pipeline) -> Iterable[Diagnostic]:
    for rule in spec.listed:
        if pipeline.axis in rule.axes:
            rest = tuple(a for a in rule.axes if a != pipeline.axis)
            yield _holds_no_slice(rule, pipeline, f"- {LayoutRule(rule.name, rest)}" if rest else "delete the rule")
    if spec.moe and spec.moe.experts == pipeline.axis:
        other = next((a.name for a in spec.mesh.axes if a.name != pipeline.axis), None)
        yield _holds_no_slice(spec.moe.rule, pipeline, f"experts: {other}" if other else "delete `moe`")


def _holds_no_slice(rule: LayoutRule, pipeline: Pipeline, fix: str) -> Diagnostic:
    axis = pipeline.axis
    return Diagnostic(
        "pipeline-axis",
        rule.axes_span,
        f"`{rule.name}` cannot be cut by `{axis}`, along which the stages lie",
        why=("a pipeline axis runs different layers at different times; it holds no slice of any tensor",),
        notes=(Note(f"`{axis}` is the axis of the pipeline", span_of(pipeline, "axis")),),
        fix=fix,
    )


def _virtual(pipeline: Pipeline) -> Iterable[Diagnostic]:
    known = SCHEDULES.get(pipeline.schedule)
    if known is None or known.least <= pipeline.virtual <= known.most:
        return
    if known.least == known.most:
        needs = f"runs {_stages(known.least)} on each rank"
    else:
        needs = f"runs {known.least} or more stages on each rank"
    others = [n for n in ("1f1b", "interleaved") if SCHEDULES[n].least <= pipeline.virtual <= SCHEDULES[n].most]
    fix = f"virtual: {known.usual}" + (f"\nschedule: {others[0]}" if others else "")
    yield Diagnostic(
        "bad-virtual",
        span_of(pipeline, "virtual"),
        f"`{pipeline.schedule}` {needs}, not {pipeline.virtual}",
        why=("each rank has `virtual` stages; " + _ranges(),),
        fix=fix.replace("\n", "   # or "),
    )


def _ranges() -> str:
    def span(least: int, most: int) -> str:
        return f"{least}" if least == most else f"{least} or more" if most >= MANY else f"{least} to {most}"

    return ", ".join(f"{name}: {span(s.least, s.most)}" for name, s in SCHEDULES.items())


def _microbatches(pipeline: Pipeline, ranks: int) -> Iterable[Diagnostic]:
    known, count = SCHEDULES[pipeline.schedule], pipeline.microbatches
    span = span_of(pipeline, "microbatches")
    if known.rounds and count % ranks:
        below = count - count % ranks
        fix = f"microbatches: {below + ranks}" + (f"   # or {below}" if below else "")
        message = f"`{pipeline.schedule}` runs microbatches in rounds of {ranks}, and {count} is no multiple of {ranks}"
        why = f"{count} mod {ranks} = {count % ranks}; a round has one microbatch for each rank of {pipeline.axis}"
        yield Diagnostic("bad-microbatches", span, message, why=(why,), fix=fix)
    stages = ranks * pipeline.virtual
    if known.filled and count < stages:
        message = f"`{pipeline.schedule}` needs a microbatch for each of its {stages} stages, and there are {count}"
        why = f"{_product(pipeline, ranks)}"
        yield Diagnostic("bad-microbatches", span, message, why=(why,), fix=f"microbatches: {stages}")


def _count(pipeline: Pipeline, ranks: int) -> Iterable[Diagnostic]:
    if pipeline.stages is None or len(pipeline.stages) == ranks * pipeline.virtual:
        return
    count, known = len(pipeline.stages), SCHEDULES[pipeline.schedule]
    each, rest = divmod(count, ranks)
    fixes = [f"virtual: {each}"] if not rest and known.least <= each <= known.most else []
    fixes += [f"{pipeline.axis}: {count // pipeline.virtual}   # in `mesh`"] if count % pipeline.virtual == 0 else []
    yield Diagnostic(
        "stage-count",
        span_of(pipeline, "stages"),
        f"{_stages(count)} {'is' if count == 1 else 'are'} listed, and the pipeline has {ranks * pipeline.virtual}",
        why=(_product(pipeline, ranks),),
        fix=" or\n".join(fixes) or f"list {_stages(ranks * pipeline.virtual)}, or `stages: balanced`",
    )


def too_many_stages(spec: Spec, ranks: int, stages: int, layers: int) -> tuple[Diagnostic, ...]:
    """Stages that would have no layer, once the number of layers is known: at most one diagnostic."""
    pipeline = spec.pipeline
    if pipeline is None or stages <= layers:
        return ()
    known = SCHEDULES.get(pipeline.schedule)
    fixes: list[str] = []
    if known is not None:
        fewer = layers // ranks
        fixes += [f"virtual: {fewer}"] if known.least <= fewer <= known.most else []
        fixes += [f"{pipeline.axis}: {layers // pipeline.virtual}   # in `mesh`"] if layers >= pipeline.virtual else []
    return (
        Diagnostic(
            "too-many-stages",
            span_of(pipeline, "virtual" if "virtual" in pipeline.spans else "axis"),
            f"there are {stages} stages and {layers} layers, so that some stage would have none",
            why=(_product(pipeline, ranks) if known else f"{pipeline.schedule} runs {stages} stages",),
            fix=" or\n".join(fixes) or "take a schedule of fewer stages",
        ),
    )


def _product(pipeline: Pipeline, ranks: int) -> str:
    return f"{pipeline.axis} {ranks} * virtual {pipeline.virtual} = {ranks * pipeline.virtual} stages"


def _stages(count: int) -> str:
    return f"{count} stage" if count == 1 else f"{count} stages"


def span_of(pipeline: Pipeline, key: str) -> Span:
    """Where a word of the pipeline stands; the whole of it, if the word is not written."""
    return pipeline.spans.get(key, pipeline.span)
