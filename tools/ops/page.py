"""docs/ops.md: what the rules say of every case, and what would be right and is not done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_lowercase

from graphpar.ir.axes import Axis, Factor
from graphpar.ir.states import Partial, Shard
from tools.ops.allowed import SUM, WHOLE, Way
from tools.ops.case import Case
from tools.ops.missing import missing
from tools.ops.program import Program, Whole, whole
from tools.ops.shardings import flows, single
from tools.ops.table import LEFT_OUT, of, ops

HEAD = """# What each op may have cut

`python -m tools.ops --write docs/ops.md` makes this page. Every row is a call that `tests/ops` runs, cut in every way
that is legal, on simulated ranks, and compares with torch: result and gradients, in float64.

* *axes*: operands, then the result, one letter per factor; `a'` is a second use of `a`, `1` a dimension of size one.
* *cut*: factors that a mesh axis may cut. `sum`: the result is then a pending sum; `own way`: the program has an op
  of its own for it; `padded`: the size is odd, and the factor is a vocabulary, the only one that may be padded.
* *sums*: operands that may be pending sums, so that the result is one.
* *refused*: what the op alone would do right, found by trying everything that two ranks may hold, and the rules do not
  do. Per operand `-` for whole, `P` for a pending sum, or the dimension that is cut.
* *families*: how many of the {families} decoder families of transformers in `tests/ops/families.yaml` use the op.
"""

MORE = "what is sent gets larger"
REASONS: Mapping[str, str] = {
    "cast": "each summand is rounded",
    "upcast": MORE,
    "embedding": MORE,
    "pad": MORE,
    "repeat_interleave": MORE,
    "detach": "no gradient",
}
COLUMNS = ("op", "call", "axes", "cut", "sums", "whole", "refused", "families")


def page(families: Mapping[str, Sequence[str]]) -> str:
    """The page, given the ops of every family."""
    lines = [HEAD.format(families=len(families)), _line(COLUMNS), _line(["---"] * len(COLUMNS))]
    for op in ops():
        used = sum(op in found for found in families.values())
        if op in LEFT_OUT:
            lines.append(_line([op, "", "", "", "", "", f"not run: {LEFT_OUT[op]}", str(used)]))
        for i, case in enumerate(of(op)):
            lines.append(_line([op, *described(case), str(used) if i == 0 else ""]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def described(case: Case) -> list[str]:
    """The cells of a case between its op and the families."""
    plain = whole(case)
    letters = _letters(plain)
    programs = list(single(plain))
    cut = {p.claims["x"]: _how(p) for p in programs if p.claims}
    uncut = [letters[f] for f, factor in plain.factors.items() if f not in cut and not factor.constant]
    views = [_axes(view, letters) for view in plain.op.views if view is not None]
    return [
        f"`{case.example}`",
        f"`{', '.join(views)} -> {_axes(plain.op.named, letters)}`",
        ", ".join(f"{letters[f]}{how}" for f, how in sorted(cut.items(), key=lambda item: letters[item[0]])),
        ", ".join(" with ".join(sorted(p.sharding.pending)) for p in flows(case) if p.passes("x")),
        ", ".join(sorted(uncut)),
        "; ".join(f"`{_spelled(way)}` ({reason(case, way)})" for way in missing(case)),
    ]


def _how(program: Program) -> str:
    state = (program.op.state or {})["x"]
    own = bool(program.op.attrs.get("split")) and program.op.op != "mean"
    uneven = int(program.whole.factors[program.claims["x"]].size) % 2
    words = {
        "own way": own or not isinstance(state, Shard | Partial),
        "sum": isinstance(state, Partial),
        "padded": uneven,
    }
    said = ", ".join(word for word, holds in words.items() if holds)
    return f" ({said})" if said else ""


def reason(case: Case, way: Way) -> str:
    """Why a way that is right is not taken, in a few words."""
    held, result = way
    if result.how in ("max", "min"):
        return f"P of {result.how}"
    if case.op in REASONS:
        return REASONS[case.op]
    others = [o for o, h in zip(case.operands, held, strict=True) if h is WHOLE and o.real]
    return "the other's gradient would be a sum" if SUM in held and others else "not worth it"


def _spelled(way: Way) -> str:
    held, result = way
    return f"{', '.join(map(str, held))} -> {result}"


def _letters(whole: Whole) -> dict[int, str]:
    found: dict[int, str] = {}
    plain = [f for f in whole.factors.values() if f.base is None and not f.constant]
    for factor, letter in zip(plain, ascii_lowercase, strict=False):
        found[factor.id] = letter
    for factor in whole.factors.values():
        if factor.base is not None:
            found[factor.id] = f"{found.get(factor.base, '?')}'"
    return found


def _axes(axes: Sequence[Axis], letters: Mapping[int, str]) -> str:
    return " ".join(_axis(axis, letters) for axis in axes) or "()"


def _axis(axis: Axis, letters: Mapping[int, str]) -> str:
    parts = [" ".join(_factor(f, letters) for f in segment) or "1" for segment in axis.segments]
    text = " + ".join(parts)
    return f"({text})" if " " in text else text


def _factor(factor: Factor, letters: Mapping[int, str]) -> str:
    return letters.get(factor.id, str(factor.size))
