"""Whether the one-device program is the source model: before anything is cut."""

from __future__ import annotations

import torch
from torch import nn

from graphpar.verify import reference
from graphpar.verify.batches import Batches, Pattern, Size
from graphpar.verify.compare import Worst, larger, relative, scalars, size, worst
from graphpar.verify.lift import LiftedCasts
from graphpar.verify.origin import Origin, doubled
from graphpar.verify.program import Program
from graphpar.verify.report import Check
from graphpar.verify.single import Single, trainable

ROUNDING = 100  # roundings of the source's dtype: about 1e-5 in float32


def holds_everything(program: Program, model: nn.Module) -> Check:
    """The program has every trained parameter of the source, and nothing that the source does not have."""
    ours = set(program.plan.stored)
    theirs = {name for name, _ in [*model.named_parameters(), *model.named_buffers()]}
    unknown, lost = sorted(ours - theirs), sorted(trainable(model).keys() - ours)
    problems = [f"not in the source: {', '.join(unknown[:4])}"] if unknown else []
    problems += [f"not in the program: {', '.join(lost[:4])}"] if lost else []
    return Check("parameters", "failed" if problems else "exact", f"{len(ours)} tensors", detail="; ".join(problems))


def as_it_is(origin: Origin, model: nn.Module, single: Single, batches: Batches, size_: Size) -> list[Check]:
    """Loss and gradients in the source's own dtypes, at sizes that nothing was captured at."""
    most = single.program.plan.max_seq or size_.length
    cases: list[tuple[Size, Pattern]] = [
        (size_, "uneven"),
        (Size(3, min(13, most)), "all"),
        (Size(2, min(7, most)), "tails"),
    ]
    found: list[Check] = []
    for case, pattern in cases:
        batch = batches.draw(case, pattern)
        theirs = reference.gradients(trainable(model), lambda b: origin.loss(model, b), batch)
        title = f"captured program, {case}, {pattern if batches.plan.ignore_index is not None else 'all'} labels"
        error = _difference(single, single.step(batch, None), theirs)
        found.append(error.check(title, "loss and gradients, source dtype", rounding(single.program)))
    return found


def in_float64(origin: Origin, model: nn.Module, single: Single, batches: Batches, size_: Size) -> Check:
    """Loss and gradients of the source's own code in float64, with its casts lifted."""
    wide, batch = doubled(model), batches.draw(size_)
    with LiftedCasts():
        theirs = reference.gradients(trainable(wide), lambda b: origin.loss(wide, b), batch)
    error = _difference(single, single.step(batch), theirs)
    return error.check("captured program in float64", "loss and gradients, casts lifted")


def causality(origin: Origin, model: nn.Module, single: Single, batches: Batches, size_: Size) -> Check:
    """Tokens after a label's position: the program reads them if and only if the source does."""
    if batches.per_row:
        return Check("causality", "skipped", detail="a label belongs to a whole row, so no token comes after it")
    if batches.plan.ignore_index is None:
        return Check("causality", "skipped", detail="the loss leaves no label out, so none can be looked at alone")
    pair = batches.probe(size_)
    with torch.no_grad():
        theirs = [origin.loss(model, batch) for batch in pair]
    ours = single.losses(pair, None)
    error = max(relative(a, b, size(b)) for a, b in zip(ours, theirs, strict=True))
    causal = torch.equal(theirs[0], theirs[1])
    if causal != torch.equal(ours[0], ours[1]):
        error = float("inf")
    compared = "no later token changes a loss" if causal else "the source itself looks ahead"
    return Worst(error, "").check("causality", compared, rounding(single.program))


def rounding(program: Program) -> float:
    """What two ways of computing the same may differ by in the source's dtypes."""
    dtypes = {stored.dtype for stored in program.plan.parameters.values() if stored.dtype.is_floating_point}
    return ROUNDING * max(torch.finfo(dtype).eps for dtype in dtypes)


def _difference(single: Single, ours: reference.Gradients, theirs: reference.Gradients) -> Worst:
    known = {name: g for name, g in theirs.gradients.items() if name in single.program.plan.parameters}
    return larger(worst(ours.gradients, known), Worst(scalars([ours.loss], theirs.loss), "loss"))
