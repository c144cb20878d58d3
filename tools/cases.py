"""`python -m tools.cases --write docs/cases.md`: what goes wrong elsewhere, and why it does not here, as a page.

The rows are tests/cases.yaml; tests/test_case_table.py holds them to what there is.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "tests" / "cases.yaml"
PROOFS = ("tests", "mutants", "impossible", "open")
THEMES = {
    "N": "Numbers",
    "C": "Capture",
    "K": "Checkpoints",
    "H": "Hangs and faults",
    "U": "Use",
    "L": "What torch and its libraries do",
}
INTRODUCTION = """# What goes wrong elsewhere, and why it does not here

People who split models over devices report much the same mistakes, again and again. Each row is one of them, with what
graphpar does about it and a proof: *tests* that fail if it goes wrong here, *mutants* (programs with just this mistake,
which the verifier rejects: [mutants.md](mutants.md)), or *impossible*, with the function that makes it so. *Open* rows
are about what graphpar cannot do yet. `python -m tools.cases --write docs/cases.md` makes this page of
`tests/cases.yaml`; a test checks that everything it names exists.
"""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.cases", description="what goes wrong elsewhere, as a page")
    parser.add_argument("--write", type=Path, required=True, help="write a page of Markdown to this file")
    parser.parse_args().write.write_text(page(rows()), encoding="utf-8")


def rows() -> list[dict[str, Any]]:
    """The cases, in the order of the page."""
    return yaml.safe_load(ROWS.read_text(encoding="utf-8"))


def proof(row: dict[str, Any]) -> str:
    """The one kind of proof that a case has. Raises ValueError if it has none, or two."""
    (kind,) = [kind for kind in PROOFS if kind in row]
    return kind


def page(cases: list[dict[str, Any]]) -> str:
    """The cases as Markdown."""
    counted = Counter(map(proof, cases))
    lines = [INTRODUCTION, f"{len(cases)} cases: {', '.join(f'{counted[kind]} {kind}' for kind in PROOFS)}.\n"]
    for letter, theme in THEMES.items():
        lines += [f"## {theme}\n", "| | what goes wrong | here | proof | reported |", "|---|---|---|---|---|"]
        lines += [_line(row) for row in cases if row["id"].startswith(letter)]
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _line(row: dict[str, Any]) -> str:
    cells = (row["id"], row["wrong"], row["here"], _proof(row), ", ".join(map(_report, row["source"])))
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _proof(row: dict[str, Any]) -> str:
    kind = proof(row)
    if kind == "open":
        return f"**open**: {row['open']}"
    if kind == "impossible":
        path, function = row["at"].split("::")
        return f"impossible: {row['impossible']} [{function}](../{path})"
    if kind == "mutants":
        return f"mutants: {'; '.join(row['mutants'])}"
    found = (test.split("::") for test in row["tests"])
    return "tests: " + ", ".join(f"[{name.removeprefix('test_').replace('_', ' ')}](../{path})" for path, name in found)


def _report(name: str) -> str:
    repository, number = name.split("#")
    return f"[{name}](https://github.com/{repository}/issues/{number})"


if __name__ == "__main__":
    main()
