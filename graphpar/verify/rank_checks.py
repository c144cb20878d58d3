"""Whether all ranks together compute what one device computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphpar.verify import expected, reference
from graphpar.verify.batches import Size
from graphpar.verify.compare import EXACT, Gathered, Worst, errors, gather, larger, relative, scalars, size, worst
from graphpar.verify.program import Program, Values
from graphpar.verify.report import Check
from graphpar.verify.steps import RATES, Parts, Step, Trained


def initial(program: Program, ours: Sequence[Parts], theirs: Values) -> Check:
    """The shards that `initialise` fills are those of the source's constructor, bit for bit."""
    whole = _gathered(program, ours)
    different = [name for name, g in whole.items() if g.unequal or not torch.equal(g.full, theirs[name])]
    detail = f"other bits in {', '.join(different[:4])}" if different else ""
    return Check("initial values", "failed" if different else "exact", f"{len(whole)} tensors", detail=detail)


def step(program: Program, size_: Size, ours: Sequence[Step], theirs: reference.Gradients) -> list[Check]:
    """Loss, gradients, norm, replicas, collectives and what the parameters declare."""
    ranks = f"{len(ours)} ranks"
    whole = _gathered(program, [rank.gradients for rank in ours])
    alike = [[rank.loss for rank in ours], [rank.norm for rank in ours]]
    full = {name: g.full for name, g in whole.items()}
    return [
        Worst(scalars([rank.loss for rank in ours], theirs.loss), "").check("loss", ranks),
        worst(full, theirs.gradients).check("gradients", f"{len(whole)} parameters"),
        Worst(scalars([rank.norm for rank in ours], theirs.norm), "").check("gradient norm", ranks),
        _replicas("gradient replicas", whole, alike),
        _padding("padding of gradients", whole),
        *expected.check([rank.log for rank in ours], program, size_, torch.float64, [list(r.spread) for r in ours]),
        expected.spread(program, {name: axes for rank in ours for name, axes in rank.spread.items()}),
    ]


def dropout(program: Program, ours: Sequence[Step], theirs: reference.Gradients | None) -> list[Check]:
    """With dropout on: replicas still agree; where masks are those of one device, so does everything else."""
    whole = _gathered(program, [rank.gradients for rank in ours])
    alike = [[rank.loss for rank in ours], [rank.norm for rank in ours]]
    found = [_replicas("with dropout: replicas", whole, alike)]
    if theirs is None:
        return found
    error = _loss_or_gradient(whole, ours, theirs)
    return [*found, error.check("with dropout: loss and gradients", "masks as on one device")]


def few(program: Program, steps: Sequence[tuple[Sequence[Step], reference.Gradients]]) -> Check:
    """With one token everywhere some experts, and perhaps all of a rank, have no rows: nobody is left out of a step."""
    error = Worst(0.0, "")
    for ours, theirs in steps:
        error = larger(error, _loss_or_gradient(_gathered(program, [rank.gradients for rank in ours]), ours, theirs))
    return error.check("few experts", f"{len(steps)} tokens, each alone: loss and gradients")


def mean_masks(program: Program, ours: Sequence[Step], theirs: reference.Gradients) -> Check:
    """With the mean of each mask in its place, everything agrees: the same is dropped in the same places."""
    whole = _gathered(program, [rank.gradients for rank in ours])
    return _loss_or_gradient(whole, ours, theirs).check("with dropout: what is dropped", "the mean of each mask")


def _loss_or_gradient(whole: dict[str, Gathered], ours: Sequence[Step], theirs: reference.Gradients) -> Worst:
    full = {name: g.full for name, g in whole.items()}
    return larger(worst(full, theirs.gradients), Worst(scalars([rank.loss for rank in ours], theirs.loss), "loss"))


def wrong_gradients(program: Program, ours: Sequence[Step], theirs: reference.Gradients) -> dict[str, float]:
    """The parameters whose gradients differ, the last one first, as backward comes to them."""
    full = {name: g.full for name, g in _gathered(program, [rank.gradients for rank in ours]).items()}
    found = errors(full, theirs.gradients)
    return {name: error for name, error in reversed(found.items()) if not error <= EXACT}


def again(first: Sequence[Step], second: Sequence[Step]) -> Check:
    """The same bits from the same step: nothing depends on which rank comes first."""
    same = all(
        torch.equal(a.loss, b.loss) and all(torch.equal(g, b.gradients[name]) for name, g in a.gradients.items())
        for a, b in zip(first, second, strict=True)
    )
    detail = "" if same else "gives other bits"
    return Check("a second run", "exact" if same else "failed", "loss and gradients", detail=detail)


def other_sizes(ours: Sequence[Sequence[Tensor]], theirs: Sequence[Tensor]) -> Check:
    """The loss at other sizes than that of the step: nothing is fixed to one."""
    pairs = [(found, wanted) for rank in ours for found, wanted in zip(rank, theirs, strict=True)]
    error = max((relative(found, wanted, size(wanted)) for found, wanted in pairs), default=0.0)
    return Worst(error, "").check("loss at other sizes", f"{len(theirs)} sizes")


def training(program: Program, ours: Sequence[Trained], theirs: Trained) -> list[Check]:
    """Parameters, both moments, losses and norms after the last update."""
    title = f"after {len(RATES)} steps"
    numbers = [(*rank.losses, *rank.norms) for rank in ours]
    wanted = (*theirs.losses, *theirs.norms)
    error = max(relative(a, b, size(b)) for rank in numbers for a, b in zip(rank, wanted, strict=True))
    found = [Worst(error, "").check(f"{title}: losses and norms", f"{len(ours)} ranks")]
    groups = {"parameters": ([rank.parameters for rank in ours], theirs.parameters)}
    groups |= {key: ([rank.moments[key] for rank in ours], theirs.moments[key]) for key in theirs.moments}
    every: dict[str, Gathered] = {}
    for word, (parts, values) in groups.items():
        whole = _gathered(program, parts)
        trained = {name: g.full for name, g in whole.items() if name in values}
        found.append(worst(trained, values).check(f"{title}: {word}", f"{len(trained)} tensors"))
        every |= {f"{name} ({word})": g for name, g in whole.items()}
    return [*found, _replicas(f"{title}: replicas", every, []), _padding(f"{title}: padding", every)]


def _gathered(program: Program, ranks: Sequence[Parts]) -> dict[str, Gathered]:
    """Every tensor put together. Raises ValueError unless all ranks that hold a part of a tensor have it."""
    stored, places = program.plan.stored, program.places()
    found: dict[str, Gathered] = {}
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        owners = [number for number, place in enumerate(places) if stored[name].held_at(place.at)]
        having = [number for number, rank in enumerate(ranks) if name in rank]
        if odd := sorted(set(owners) ^ set(having)):
            raise ValueError(
                f"{name} is on ranks {_spell(having)}, and should be on {_spell(owners)}: see rank {odd[0]}"
            )
        parts = gather([ranks[n][name] for n in owners], stored[name], [places[n] for n in owners])
        found[name] = replace(parts, unequal=tuple(owners[n] for n in parts.unequal))
    return found


def _spell(ranks: Sequence[int]) -> str:
    return " ".join(map(str, ranks)) or "none"


def _replicas(title: str, whole: dict[str, Gathered], alike: Sequence[Sequence[Tensor]]) -> Check:
    wrong = [f"{name} on ranks {' '.join(map(str, g.unequal))}" for name, g in whole.items() if g.unequal]
    wrong += ["loss or norm" for same in alike if any(not torch.equal(x, same[0]) for x in same)]
    return Check(title, "failed" if wrong else "exact", f"{len(whole)} tensors", detail="; ".join(wrong[:3]))


def _padding(title: str, whole: dict[str, Gathered]) -> Check:
    wrong = {name: g.padding for name, g in whole.items() if g.padding != 0}
    detail = "; ".join(f"{name} has {value:.1e} in its padding" for name, value in list(wrong.items())[:3])
    return Check(title, "failed" if wrong else "exact", f"zero in {len(whole)} tensors", detail=detail)
