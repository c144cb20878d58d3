"""The table of outcomes, for a terminal and as a page."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tools.mutants.judge import Named, Outcome
from tools.mutants.table import KINDS

LEADING: tuple[Named, ...] = ("line", "value", "text", "check")
HEADINGS = ("build", "mutant", "graphpar check", "graphpar verify", "leads to", "s")
INTRODUCTION = """# Wrong programs, and who rejects them

A mutant is a right program with one mistake in it: an edit of the generated text, of its plan, or of a function of the
runtime while a verification runs. `graphpar check` reads the text, `graphpar verify` runs all ranks and compares with
one device. What neither rejects, though it computes something else, is a hole.
`python -m tools.mutants --write docs/mutants.md` makes this page.

In the column of `graphpar check`, *not followed* is a text that is not proven, nor said to be wrong; a dash one that is
proven right: only the runtime is wrong then, or a number in the text, of which that check knows nothing. The column of
`graphpar verify` has the first check that fails, other than `graphpar check` itself. *Leads to* says how its report
leads to the mistake. Its first difference names the edited `line`, or a `value` that is spoiled by it, among at most
six lines; or else `text`: the static check names the edited line, or the next that reads what it gives; or else
`check`: nothing differs within a step, or nothing runs, and the failing check names the mistake in its own words.
`astray` is a first difference that names neither, `none` a report without one that does not say what is wrong.
"""


def score(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures that count."""
    judged = [o for o in outcomes if not o.mutant.equivalent]
    named = Counter(o.named for o in judged if o.check)
    return {
        "mutants": len(outcomes),
        "equivalent": len(outcomes) - len(judged),
        "killed": sum(o.killed for o in judged),
        "of": len(judged),
        "killed by check": sum(o.proven_wrong for o in judged),
        "killed by verify": sum(bool(o.check) for o in judged),
        "lead to the mistake": sum(named[word] for word in LEADING),
        **{f"named by {word}": named[word] for word in LEADING},
        "seconds": round(sum(o.seconds for o in outcomes)),
    }


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """The score in words."""
    s = score(outcomes)
    return [
        f"{s['killed']} of {s['of']} mutants are killed ({_share(s['killed'], s['of'])}); {s['equivalent']} more are "
        "equivalent.",
        f"graphpar check alone kills {s['killed by check']}, graphpar verify without it {s['killed by verify']}.",
        f"{s['lead to the mistake']} of {s['killed']} reports lead to the mistake "
        f"({_share(s['lead to the mistake'], s['killed'])}): {s['named by line']} by the edited line and "
        f"{s['named by value']} by a spoiled value in the first difference, {s['named by text']} by the line of the "
        f"static check, {s['named by check']} in the words of the failing check.",
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
