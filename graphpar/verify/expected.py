"""Which collectives a step has to run, from plan.json, against those that ran."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import torch

from graphpar.codegen.plan import backward, flat
from graphpar.runtime.axis import Executed
from graphpar.runtime.buckets import Gradient, buckets
from graphpar.runtime.gradients import sum_dtype
from graphpar.verify.batches import Size
from graphpar.verify.expected_stages import actions, loss_of_pipeline, messages, shared
from graphpar.verify.program import Program
from graphpar.verify.report import Check
from graphpar.verify.routed import routed_bytes, routed_kinds
from graphpar.verify.wanted import Wanted, evaluate

PHASES = ("forward", "backward", "step")
MESSAGES = ("send", "recv")


def wanted(
    program: Program, size: Size, dtype: torch.dtype, order: Sequence[str], rank: int
) -> dict[str, list[Wanted]]:
    """What one step runs on a rank, by phase. Floats have `dtype`; `order` are the parameters as it declares them."""
    row = actions(program, rank)
    step = Size(size.rows // (program.plan.pipeline.microbatches if program.plan.pipeline else 1), size.length)
    forward = [("forward", entry) for stage, kind in row if kind == "F" for entry in flat(stage)]
    back = [ran for stage, kind in row if kind in ("B", "I") for ran in backward(stage)]
    return {
        "forward": list(_moves(forward, program.mesh, step, dtype)),
        "backward": list(_moves(back, program.mesh, step, dtype)),
        "step": _step(program, dtype, order),
        "messages": messages(program, rank, step, dtype),
    }


def check(
    logs: Sequence[Sequence[Executed]],
    program: Program,
    size: Size,
    dtype: torch.dtype,
    orders: Sequence[Sequence[str]],
) -> list[Check]:
    """One check per phase: count, kind, order, axis and bytes on every rank; and one of what stages send."""
    every = [wanted(program, size, dtype, order, rank) for rank, order in enumerate(orders)]
    parted = [_parted(log) for log in logs]
    unordered = {rank for rank in range(len(logs)) if _in_any_order(actions(program, rank))}
    found: list[Check] = []
    for phase in (*PHASES, *(["messages"] if program.plan.pipeline else [])):
        problems = [
            f"rank {rank}: {text}"
            for rank, (log, expected) in enumerate(zip(parted, every, strict=True))
            if (text := _difference(log[phase], expected[phase], phase == "messages" or rank in unordered))
        ]
        problems += routed_bytes([log[phase] for log in parted], [expected[phase] for expected in every])
        counts = sorted({len(expected[phase]) for expected in every})
        count = f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} on each of {len(logs)} ranks"
        title = "messages between stages" if phase == "messages" else f"collectives, {phase}"
        found.append(Check(title, "failed" if problems else "exact", count, detail=problems[0] if problems else ""))
    others = {e.phase for log in logs for e in log} - set(PHASES)
    if others:
        found.append(Check("collectives, other", "failed", detail=f"in {', '.join(sorted(others))}"))
    return found


def _in_any_order(row: Sequence[tuple[Sequence[Mapping[str, Any]], str]]) -> bool:
    """Whether it is autograd that decides on the order: of halves of a backward, and when something is run again."""
    return any(
        kind == "W" or backward(entries) != [("backward", e) for e in flat(entries)[::-1]] for entries, kind in row
    )


def _parted(log: Sequence[Executed]) -> dict[str, list[Executed]]:
    """What ran by phase, and the messages between stages apart from the rest."""
    sent = [e for e in log if e.kind in MESSAGES]
    rest = [e for e in log if e.kind not in MESSAGES]
    return {**{phase: [e for e in rest if e.phase == phase] for phase in PHASES}, "messages": sent}


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


def _difference(ran: Sequence[Executed], expected: Sequence[Wanted], in_any_order: bool) -> str:
    if in_any_order:
        kinds = routed_kinds(expected)
        ran = sorted(ran, key=lambda one: _what(one, kinds))
        expected = [replace(w, routed=w.routed or "all") if (w.kind, w.axis) in kinds else w for w in expected]
        expected = sorted(expected, key=lambda one: _what(one, kinds))
    for number, (one, other) in enumerate(zip_longest(ran, expected)):
        if one is None:
            return f"{len(ran)} of {len(expected)} ran; missing from number {number + 1} on: {other}"
        if other is None:
            return f"number {number + 1} is not in the plan: {one.kind} over {one.axis} of {one.bytes} bytes"
        if not other.matches(one):
            return f"number {number + 1} is {one.kind} over {one.axis} of {one.bytes} bytes; the plan has {other}"
    return ""


def _what(one: Executed | Wanted, routed: Collection[tuple[str, str]]) -> tuple[str, str, int]:
    return one.kind, one.axis, 0 if (one.kind, one.axis) in routed else one.bytes


def _moves(
    entries: Iterable[tuple[str, Mapping[str, Any]]], mesh: Mapping[str, int], size: Size, dtype: torch.dtype
) -> Iterable[Wanted]:
    """The collectives of entries of the plan, each in its direction."""
    for direction, entry in entries:
        axis = _wide(entry["axis"].split(), mesh)
        if entry[direction] and axis:
            held = dtype if (own := getattr(torch, entry["dtype"])).is_floating_point else own
            count = evaluate(str(entry[f"{direction}_elements"]), size)
            why = f"{entry['module'] or 'the model'}: {entry['reason']}"
            yield Wanted(entry[direction], axis, count * held.itemsize, why, entry.get("routed", ""))


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
    norm = [Wanted("all_reduce", world, 16 if program.plan.pipeline else 8, "gradient norm")] if world else []
    loss = [Wanted("all_reduce", data, 8 if program.plan.pipeline else wide.itemsize, "loss")] if data else []
    return [*counts, *loss_of_pipeline(program), *sums, *shared(program, wide, order), *norm, *loss]


def _gradient(name: str, program: Program, dtype: torch.dtype) -> Gradient:
    entry = program.document["parameters"][name]
    count = 1
    for n in entry["local_shape"]:
        count *= n
    axes = tuple(a for a in entry["grad_sum"] if program.mesh[a] > 1)
    return Gradient(name, axes, entry["dtype"], count * sum_dtype(dtype).itemsize)


def _wide(axes: Sequence[str], mesh: Mapping[str, int]) -> str:
    return " ".join(axis for axis in axes if mesh[axis] > 1)
