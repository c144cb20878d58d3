"""Which collectives a step has to run, from plan.json, against those that ran."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import sympy
import torch

from graphpar.codegen.plan import flat
from graphpar.runtime.axis import Executed
from graphpar.runtime.buckets import Gradient, buckets
from graphpar.runtime.gradients import sum_dtype
from graphpar.verify.batches import Size
from graphpar.verify.program import Program
from graphpar.verify.report import Check

PHASES = ("forward", "backward", "step")


@dataclass(frozen=True)
class Wanted:
    """One collective that must run, and the decision behind it."""

    kind: str
    axis: str
    bytes: int
    why: str = ""

    def matches(self, ran: Executed) -> bool:
        """Whether this is what ran."""
        return (self.kind, self.axis, self.bytes) == (ran.kind, ran.axis, ran.bytes)

    def __str__(self) -> str:
        return f"{self.kind} over {self.axis} of {self.bytes} bytes" + (f" ({self.why})" if self.why else "")


def wanted(program: Program, size: Size, dtype: torch.dtype, order: Sequence[str]) -> dict[str, list[Wanted]]:
    """What one step runs, by phase. Floats have `dtype`; `order` are the parameters as the model declares them."""
    entries = flat(program.document["collectives"])
    return {
        "forward": list(_moves(entries, "forward", program.mesh, size, dtype)),
        "backward": list(_moves(entries[::-1], "backward", program.mesh, size, dtype)),
        "step": _step(program, dtype, order),
    }


def check(
    logs: Sequence[Sequence[Executed]], program: Program, size: Size, dtype: torch.dtype, order: Sequence[str]
) -> list[Check]:
    """One check per phase: count, kind, order, axis and bytes on every rank."""
    expected = wanted(program, size, dtype, order)
    found: list[Check] = []
    for phase in PHASES:
        problem = next(
            (
                f"rank {rank}: {text}"
                for rank, log in enumerate(logs)
                if (text := _difference([e for e in log if e.phase == phase], expected[phase]))
            ),
            "",
        )
        count = f"{len(expected[phase])} on each of {len(logs)} ranks"
        found.append(Check(f"collectives, {phase}", "failed" if problem else "exact", count, detail=problem))
    others = {e.phase for log in logs for e in log} - set(PHASES)
    if others:
        found.append(Check("collectives, other", "failed", detail=f"in {', '.join(sorted(others))}"))
    return found


def spread(program: Program, held: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]) -> Check:
    """Whether the model's parameters say of their gradients what the plan says."""
    problems: list[str] = []
    for name, entry in program.document["parameters"].items():
        for word, ours, theirs in (
            ("grad_sum", held[name][0], entry["grad_sum"]),
            ("sharded", held[name][1], entry["sharded"]),
        ):
            if set(ours) != set(theirs):
                problems.append(
                    f"{name}: {word} is {' '.join(ours) or 'nothing'} and the plan says {' '.join(theirs) or 'nothing'}"
                )
    detail = "; ".join(problems[:3])
    return Check("declared gradient sums", "failed" if problems else "exact", f"{len(held)} parameters", detail=detail)


def _difference(ran: Sequence[Executed], expected: Sequence[Wanted]) -> str:
    for number, (one, other) in enumerate(zip_longest(ran, expected)):
        if one is None:
            return f"{len(ran)} of {len(expected)} ran; missing from number {number + 1} on: {other}"
        if other is None:
            return f"number {number + 1} is not in the plan: {one.kind} over {one.axis} of {one.bytes} bytes"
        if not other.matches(one):
            return f"number {number + 1} is {one.kind} over {one.axis} of {one.bytes} bytes; the plan has {other}"
    return ""


def _moves(
    entries: Iterable[Mapping[str, Any]], phase: str, mesh: Mapping[str, int], size: Size, dtype: torch.dtype
) -> Iterable[Wanted]:
    for entry in entries:
        axis = _wide(entry["axis"].split(), mesh)
        if entry[phase] and axis:
            held = dtype if (own := getattr(torch, entry["dtype"])).is_floating_point else own
            count = _evaluate(str(entry[f"{phase}_elements"]), size)
            yield Wanted(
                entry[phase], axis, count * held.itemsize, f"{entry['module'] or 'the model'}: {entry['reason']}"
            )


def _step(program: Program, dtype: torch.dtype, order: Sequence[str]) -> list[Wanted]:
    """The number of labels, the sums of gradients, the norm and the reported loss."""
    mesh, data = program.mesh, _wide(program.plan.data_axes, program.mesh)
    wide = sum_dtype(dtype)
    counts = [Wanted("all_reduce", data, 8, "number of labels")] if data and program.document["count"] else []
    grads = [_gradient(name, program, dtype) for name in order if program.plan.parameters[name].trainable]
    sums = [
        Wanted("all_reduce", " ".join(b[0].axes), sum(g.bytes for g in b), f"gradients of {len(b)} parameters")
        for b in buckets(grads)
    ]
    world = _wide(tuple(mesh), mesh)
    norm = [Wanted("all_reduce", world, 8, "gradient norm")] if world else []
    loss = [Wanted("all_reduce", data, wide.itemsize, "loss")] if data else []
    return [*counts, *sums, *norm, *loss]


def _gradient(name: str, program: Program, dtype: torch.dtype) -> Gradient:
    entry = program.document["parameters"][name]
    count = 1
    for n in entry["local_shape"]:
        count *= n
    axes = tuple(a for a in entry["grad_sum"] if program.mesh[a] > 1)
    return Gradient(name, axes, entry["dtype"], count * sum_dtype(dtype).itemsize)


def _wide(axes: Sequence[str], mesh: Mapping[str, int]) -> str:
    return " ".join(axis for axis in axes if mesh[axis] > 1)


@lru_cache(maxsize=10_000)
def _evaluate(text: str, size: Size) -> int:
    symbols = {name: sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "seq")}
    value: sympy.Expr = sympy.parse_expr(text, local_dict=symbols).subs(
        {symbols["batch"]: size.rows, symbols["seq"]: size.length}
    )
    return int(value)
