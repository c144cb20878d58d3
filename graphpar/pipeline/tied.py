"""Parameters that several stages read, where the spec wants each of them on one rank."""

from __future__ import annotations

from collections.abc import Sequence, Set

from graphpar.errors import Diagnostic
from graphpar.language.check_pipeline import span_of
from graphpar.language.schema import Spec


def check_tied(stages: Sequence[Set[str]], ranks: Sequence[int], spec: Spec) -> list[Diagnostic]:
    """What `tied: same_stage` does not allow: at most one diagnostic for each parameter.

    `stages` are the names of the parameters that each stage reads, `ranks` where each stage lies: two stages of one
    rank share a parameter without a copy.
    """
    pipeline = spec.pipeline
    if pipeline is None or pipeline.tied != "same_stage":
        return []
    found: list[Diagnostic] = []
    for name in sorted(set().union(*stages)):
        readers = [s for s, names in enumerate(stages) if name in names]
        homes = sorted({ranks[s] for s in readers})
        if len(homes) > 1:
            places = " and ".join(f"stage {s} on {pipeline.axis} {ranks[s]}" for s in readers)
            found.append(
                Diagnostic(
                    "tied-apart",
                    span_of(pipeline, "tied"),
                    f"`{name}` is read by stages of {len(homes)} ranks, and `same_stage` wants it on one",
                    why=(f"it is read by {places}",),
                    fix="tied: allreduce",
                )
            )
    return found
