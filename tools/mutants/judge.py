"""What the static check and the verifier say to one mutant."""

import difflib
import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphpar.errors import GraphparError
from graphpar.verify.report import Report
from graphpar.verify.verify import Options, verify
from tools.mutants.builds import Build
from tools.mutants.mutant import Mutant

TIMEOUT = 20  # seconds: a rank that waits in vain gives up
TEXT = "text"  # the check of `verify` that is the static one

FEW = 6  # lines: a first difference that suspects more of them leads nowhere

# How the report leads to the mistake: its first difference names the edited line, or a value that the mistake spoils;
# or else the static check names the line; or nothing differs within a step, or nothing runs, and the check that fails
# names it, or does not; or the report leads astray.
Named = Literal["line", "value", "text", "check", "none", "astray", ""]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    static: str  # what the static check says first; nothing if it proves the text right
    proven_wrong: bool  # by the static check; otherwise it only could not follow
    check: str  # the first check of `verify` that fails and runs the program; nothing if none does
    detail: str
    named: Named
    first: str
    suspects: int  # lines that the first difference suspects
    seconds: float

    @property
    def killed(self) -> bool:
        """Whether somebody noticed."""
        return self.proven_wrong or bool(self.check)

    @property
    def is_hole(self) -> bool:
        """Whether a wrong program passed."""
        return not self.killed and not self.mutant.equivalent

    def json(self) -> dict[str, Any]:
        """As JSON knows it."""
        own = {key: getattr(self.mutant, key) for key in ("name", "kind", "build", "equivalent")}
        words = ("killed", "static", "proven_wrong", "check", "detail", "named", "first", "suspects")
        said = {word: getattr(self, word) for word in words}
        return {**own, **said, "seconds": round(self.seconds, 2)}


def judge(mutant: Mutant, build: Build) -> Outcome:
    """Make the mutant and ask both.

    Raises NothingToMutateError if the edits do not apply.
    """
    start = time.monotonic()
    right = build.files
    files = mutant.apply(right)
    findings = build.findings(files)
    wrong = [finding for finding in findings if finding.followed]
    static = (wrong or findings)[0] if findings else None
    with tempfile.TemporaryDirectory(prefix="mutant-") as root:
        folder = Path(root, "build")
        shutil.copytree(build.folder, folder)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        check, detail, report = _verified(mutant, build, folder)
    first = report.first if report else None
    named: Named = ""
    if check:
        changed = _changed(right["model.py"], files["model.py"])
        named = _named(mutant, report, changed, files["model.py"].splitlines())
        if named in ("none", "astray") and static and _about(mutant, static.line, changed, files["model.py"]):
            named = "text"
    told = f"line {static.line}: {static.message}" if static else ""
    what = f"{first.what}, line {first.line}" if first else ""
    suspects = len(first.lines) if first else 0
    return Outcome(mutant, told, bool(wrong), check, detail, named, what, suspects, time.monotonic() - start)


def _verified(mutant: Mutant, build: Build, folder: Path) -> tuple[str, str, Report | None]:
    """The first check that fails, why, and the report. A build that cannot be compared at all has failed as well."""
    with ExitStack() as stack:
        for patch in mutant.patches:
            stack.enter_context(patch.active())
        try:
            report = verify(folder, build.origin, build.spec, Options(timeout=TIMEOUT, capture=mutant.everywhere))
        except GraphparError as error:
            return "refused", str(error).splitlines()[0], None
    failed = [check for check in report.failures if check.name != TEXT]
    return (failed[0].name, failed[0].detail, report) if failed else ("", "", report)


def _named(mutant: Mutant, report: Report | None, changed: set[int], lines: Sequence[str]) -> Named:
    """How what runs leads to the mistake."""
    if report is None:
        return "none"
    if report.first is None:
        told = "; ".join(f"{check.name} {check.detail}" for check in report.failures if check.name != TEXT)
        named = any(f"model.py:{n}:" in told for n in changed)
        return "check" if named or _spoiled(mutant, told) else "none"
    suspects = report.first.lines if len(report.first.lines) <= FEW else ()
    if changed & {report.first.line, *suspects}:
        return "line"
    word = "the gradient of " if report.first.what.startswith("the gradient of ") else ""
    told = [report.first.what, *(word + lines[n - 1].strip() for n in suspects)]
    if report.first.line is None:
        told += [check.name for check in report.failures]
    return "value" if any(_spoiled(mutant, text) for text in told) else "astray"


def _about(mutant: Mutant, line: int, changed: set[int], text: str) -> bool:
    """Whether a line is an edited one, or reads what an edited one just above, or in the constructor, gives."""
    lines = [code.split("  #")[0].strip() for code in text.splitlines()]
    given = [m[1] for n in changed if (m := re.match(r"([\w.]+) = ", lines[n - 1])) and n < line]
    near = [name for name in given if name.startswith("self.") or line - max(changed) <= FEW]
    read = any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", lines[line - 1]) for name in near)
    return line in changed or read or _spoiled(mutant, lines[line - 1])


def _spoiled(mutant: Mutant, told: str) -> bool:
    return bool(mutant.spoils and re.search(mutant.spoils, told))


def _changed(before: str, after: str) -> set[int]:
    """The lines of the new text that the old one has not, or behind which it has one more."""
    matcher = difflib.SequenceMatcher(a=before.splitlines(), b=after.splitlines(), autojunk=False)
    found: set[int] = set()
    for word, _, _, start, end in matcher.get_opcodes():
        if word != "equal":
            found.update(range(start + 1, max(end, start + 1) + 1))
    return found
