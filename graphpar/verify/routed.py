"""Rows by expert: how many a rank hands in is up to the data, and how many all ranks do together is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphpar.runtime.axis import Executed
from graphpar.verify.wanted import Wanted


def routed_kinds(expected: Sequence[Wanted]) -> set[tuple[str, str]]:
    """The kinds of collectives, with their axes, that some rows by expert change hands by."""
    return {(one.kind, one.axis) for one in expected if one.routed}


def routed_bytes(logs: Sequence[Sequence[Executed]], every: Sequence[Sequence[Wanted]]) -> Iterator[str]:
    """What is wrong with the bytes that all ranks together hand to such collectives."""
    for kind, axis in sorted({k for expected in every for k in routed_kinds(expected)}):
        ran = sum(e.bytes for log in logs for e in log if (e.kind, e.axis) == (kind, axis))
        planned = sum(w.bytes for expected in every for w in expected if (w.kind, w.axis) == (kind, axis))
        most = any(w.routed == "at most" for expected in every for w in expected if (w.kind, w.axis) == (kind, axis))
        if ran > planned or (ran < planned and not most):
            yield f"all ranks: {kind} over {axis} of {ran} bytes together; the plan has {planned}"
