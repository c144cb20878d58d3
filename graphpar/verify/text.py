"""What the text of a program says by itself, before anything runs."""

from __future__ import annotations

from graphpar.check.check import check_program
from graphpar.check.schedule import check_schedule
from graphpar.verify.program import Program
from graphpar.verify.report import Check


def text(program: Program) -> Check:
    """Every state, derived from the text alone."""
    findings = check_program(program.text, program.document)
    lines = f"{len(program.text.splitlines())} lines"
    wrong = [finding for finding in findings if finding.followed]
    if found := wrong or findings:
        told = f"model.py:{found[0].line}: {found[0].message}"
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        return Check("text", "failed" if wrong else "skipped", lines, detail=told + more)
    return Check("text", "ok", lines)


def schedule(program: Program) -> list[Check]:
    """Whether schedule.csv is the plan's order, and one that ends; nothing without a pipeline."""
    if program.plan.pipeline is None:
        return []
    found = [f"schedule.csv:{f.line}: {f.message}" for f in check_schedule(program.schedule, program.document)]
    actions = sum(len(row) for row in program.document["pipeline"]["order"].values())
    return [Check("schedule", "failed" if found else "exact", f"{actions} actions", detail="; ".join(found[:3]))]
