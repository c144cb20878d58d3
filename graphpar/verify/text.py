"""What the text of a program says by itself, before anything runs."""

from __future__ import annotations

from graphpar.check.check import check_program
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
