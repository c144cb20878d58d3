"""The table of outcomes, for a terminal and as a page."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools.mutants.judge import Outcome
from tools.mutants.table import KINDS

HEADINGS = ("build", "mutant", "graphpar check", "graphpar verify", "leads to", "s")
INTRODUCTION = """# Wrong programs, and who rejects them

A mutant is a right program with one mistake in it: an edit of the generated text, of its plan, or of a function of the
runtime while a verification runs. `graphpar check` reads the text, `graphpar verify` runs all ranks and compares with
one device. What neither rejects, though it computes something else, is a hole.
`python -m tools.mutants --write docs/mutants.md` makes this page.

In the column of `graphpar check`, *not followed* is a text that is not proven, nor said to be wrong; a dash one that is
proven right: only the runtime is wrong then, or a number in the text, of which that check knows nothing. The column of
`graphpar verify` has the first check that fails, other than `graphpar check` itself. *Leads to* says what the first
difference names: the edited `line`, or a `value` that is spoiled by it. Where nothing differs within a step, or nothing
runs, there is no first difference: `check` says that the failing check names the mistake in its own words, `none` that
it does not. `astray` is a first difference that names neither.
"""


def score(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures that count."""
    judged = [o for o in outcomes if not o.mutant.equivalent]
    named = Counter(o.named for o in judged if o.check)
    differ = named["line"] + named["value"] + named["astray"]
    return {
        "mutants": len(outcomes),
        "equivalent": len(outcomes) - len(judged),
        "killed": sum(o.killed for o in judged),
        "of": len(judged),
        "killed by check": sum(o.proven_wrong for o in judged),
        "killed by verify": sum(bool(o.check) for o in judged),
        "first differences": differ,
        "right first differences": named["line"] + named["value"],
        "without first difference": named["check"] + named["none"],
        "named by the check": named["check"],
        "seconds": round(sum(o.seconds for o in outcomes)),
    }


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """The score in words."""
    s = score(outcomes)
    return [
        f"{s['killed']} of {s['of']} mutants are killed ({_share(s['killed'], s['of'])}); {s['equivalent']} more are "
        "equivalent.",
        f"graphpar check alone kills {s['killed by check']}, graphpar verify without it {s['killed by verify']}.",
        f"{s['right first differences']} of {s['first differences']} first differences lead to the mistake "
        f"({_share(s['right first differences'], s['first differences'])}); of {s['without first difference']} mutants "
        f"without one, the check names {s['named by the check']}.",
    ]


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "none"


def show(outcomes: Sequence[Outcome]) -> None:
    """Print the table and the score."""
    table = Table(box=box.SIMPLE)
    for heading in HEADINGS:
        table.add_column(heading, justify="right" if heading == "s" else "left")
    for kind, group in _by_kind(outcomes):
        table.add_row(f"[bold]{kind}", "", "", "", "", "")
        for outcome in group:
            style = "bold red" if outcome.is_hole else None
            table.add_row(*map(escape, (*_cells(outcome), f"{outcome.seconds:.1f}")), style=style)
    console = Console()
    console.print(table)
    for sentence in sentences(outcomes):
        console.print(sentence, soft_wrap=True)
    console.print(f"{score(outcomes)['seconds']} s")
    for outcome in outcomes:
        if outcome.is_hole:
            console.print(f"[bold red]survives:[/] {outcome.mutant.build}: {outcome.mutant.name}")


def page(outcomes: Sequence[Outcome]) -> str:
    """The same as Markdown."""
    lines = [INTRODUCTION, *(f"* {sentence}" for sentence in sentences(outcomes))]
    lines.append(f"* {score(outcomes)['seconds']} s on two cores, of which half are used.\n")
    for kind, group in _by_kind(outcomes):
        lines += [f"## {kind}\n", f"{KINDS[kind][0].upper()}{KINDS[kind][1:]}.\n"]
        lines += [f"| {' | '.join(HEADINGS[:-1])} |", "|---|---|---|---|---|"]
        lines += [f"| {' | '.join(cell.replace('|', '/') for cell in _cells(o))} |" for o in group]
        lines.append("")
    lines.append("## Equivalent\n")
    lines += [f"* {o.mutant.name}: {o.mutant.equivalent}." for o in outcomes if o.mutant.equivalent]
    return "\n".join(lines) + "\n"


def _by_kind(outcomes: Sequence[Outcome]) -> list[tuple[str, list[Outcome]]]:
    order = list(KINDS)
    ordered = sorted(outcomes, key=lambda o: order.index(o.mutant.kind))
    return [(kind, list(group)) for kind, group in groupby(ordered, key=lambda o: o.mutant.kind)]


def _cells(outcome: Outcome) -> tuple[str, ...]:
    """What the columns say, up to the seconds."""
    check = ("" if outcome.proven_wrong else "not followed: ") + _short(outcome.static) if outcome.static else "-"
    verify = outcome.check or ("equivalent" if outcome.mutant.equivalent else "SURVIVES")
    return outcome.mutant.build, outcome.mutant.name, check, verify, outcome.named


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else text[: most - 3].rsplit(" ", 1)[0] + " ..."
