"""The collectives that run against those of the plan, in their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphpar.check.interpret import Finding
from graphpar.check.rules import Collective


def collectives(plan: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The collectives of a plan, in the order in which they run forward, those of one stage after another."""
    pipeline = plan.get("pipeline")
    parts = [stage["collectives"] for stage in pipeline["stages"]] if pipeline else [plan["collectives"]]
    return [entry for part in parts for entry in _flat(part)]


def in_order(found: Sequence[Collective], plan: Mapping[str, Any]) -> Iterator[Finding]:
    """The first collective that is not the plan's next one."""
    expected = [(e["forward"], e["backward"], e["axis"]) for e in collectives(plan)]
    ran = [(c.forward, c.backward, c.axis) for c in found]
    for i, (want, have) in enumerate(zip(expected, ran, strict=False)):
        if want != have:
            message = f"{_words(have)} runs here, where the plan has {_words(want)} (number {i + 1})"
            yield Finding(found[i].line, 1, message, followed=True)
            return
    if len(ran) != len(expected):
        line = found[-1].line if found else 1
        yield Finding(line, 1, f"{len(ran)} collectives run, and the plan has {len(expected)}", followed=True)


def _words(collective: tuple[str | None, str | None, str]) -> str:
    forward, backward, axis = collective
    return f"{forward or 'nothing'} forward and {backward or 'nothing'} backward over {axis}"


def _flat(entries: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        if "loop" in entry:
            for kind in entry["kinds"]:
                yield from _flat(entry["bodies"][kind])
        elif "again" in entry:
            yield from _flat(entry["again"])
        else:
            yield entry
