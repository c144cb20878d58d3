"""Findings as diagnostics."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graphpar.check.interpret import Finding
from graphpar.errors import Diagnostic, Note, Span


def diagnostics(findings: Iterable[Finding], file: Path) -> list[Diagnostic]:
    """What is wrong with a file, or could not be followed in it."""
    return [_diagnostic(finding, file) for finding in findings]


def _diagnostic(finding: Finding, file: Path) -> Diagnostic:
    span = Span(str(file), finding.line, finding.column)
    if finding.followed:
        fix = f"graphpar compile MODEL SPEC -o {file.parent} --force   # write it anew"
        return Diagnostic("wrong-program", span, finding.message, fix=fix, kind="check")
    note = Note("what cannot be followed is not proven; `graphpar verify` runs the program instead")
    return Diagnostic(
        "not-followed", span, finding.message, notes=(note,), fix=f"graphpar verify {file.parent}", kind="check"
    )
