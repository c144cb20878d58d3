"""The collectives of a build as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphpar.explain.asked import Op
from graphpar.explain.collectives import Collective
from graphpar.explain.explained import Explained
from graphpar.explain.memory import spell
from graphpar.explain.parameters import Parameter
from graphpar.explain.tables import Table

COLUMNS = ("#", "phase", "kind", "axis", "count", "bytes", "why")
APART = "besides these: the number of labels, the loss and the norm of the gradients, a number each"


def listed(chosen: Sequence[Collective], known: Explained) -> Table:
    """A row for each: what runs in each phase, how often in a step, the bytes of all of it, and why."""
    size = known.size
    title = f"{len(chosen)} collectives in the text; count and bytes are those of a step and a rank, for a batch of"
    title += f" {size.batch} x {size.seq} tokens ({size.why})"
    return Table(title, COLUMNS, [_row(one) for one in chosen])


def of_parameters(chosen: Sequence[Parameter]) -> Table:
    """A row for each."""
    rows = [(p.name, str(len(p.members)), p.axes, " ".join(p.sharded), " ".join(p.grad_sum)) for p in chosen]
    title = f"{len(chosen)} parameters and buffers of that name"
    return Table(title, ("name", "count", "axes", "cut by", "gradient summed over"), rows)


def of_ops(chosen: Sequence[tuple[Op, Sequence[Mapping[str, Any]]]]) -> Table:
    """A row for each, with the modules that run it."""
    rows = [
        (
            str(op.line),
            op.where or "",
            _lines(dict.fromkeys(rule.text for step in op.cut if (rule := step.rule))),
            str(sum(run["forward"] for run in runs)) if runs else "",
            runs[0]["code"] if runs else op.module,
        )
        for op, runs in chosen
    ]
    title = f"{len(chosen)} statements of model.py that send nothing by themselves"
    return Table(title, ("line", "source", "cut by", "count", "statement"), rows)


def _row(one: Collective) -> Sequence[str]:
    where = [*(rule.text for rule in one.chain.rules), one.where or "", one.place]
    return (
        str(one.number),
        _lines(run.phase for run in one.runs),
        _lines(run.kind for run in one.runs),
        one.axis,
        _lines(str(run.count) for run in one.runs),
        _lines(spell(run.bytes) for run in one.runs),
        f"{one.reason}\n{'   '.join(filter(None, where))}",
    )


def _lines(words: Iterable[str]) -> str:
    return "\n".join(words)
