"""The ops of a mixture of experts, on rows by expert.

A dimension of rows by expert is written here as all experts times all choices, `experts batch seq topk`: too long by
the factor of experts, alike everywhere. What matters is which axes cut its experts and which its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from graphpar.check.contraction import check_whole
from graphpar.check.dims import ONE, Dim, Factor, Wrong, agree, cut_by, dimension, product, spell
from graphpar.check.rules import Axis, rule
from graphpar.check.value import Value, elementwise, meet, together


@dataclass(frozen=True)
class Routing(Value):
    """Which rows are of which expert. Its one dimension is that of the rows.

    `experts` are those of this rank, `tokens` the dimensions of the tokens that its rows are of, `topk` that of their
    choices; `before` is the dimension of the rows before they changed hands.
    """

    experts: Factor = ONE[0][0]
    tokens: tuple[Dim, ...] = ()
    topk: Dim = ONE
    before: Dim | None = None


def _routing(experts: Factor, tokens: Sequence[Dim], topk: Dim, before: Dim | None = None) -> Routing:
    rows = product([((experts,),), *tokens, topk])
    return Routing((rows,), experts=experts, tokens=tuple(tokens), topk=topk, before=before)


@rule("route")
def route(chosen: Value, experts: int, kept: Value | None = None) -> Routing:
    """The choices [*tokens, topk] of all tokens of this rank, or those that `kept` says are taken."""
    *tokens, topk = chosen.dims
    if kept is not None:
        meet(
            [chosen, kept],
            [together([a, b], [chosen, kept]) for a, b in zip(chosen.dims, kept.dims, strict=True)],
            "other",
        )
    if chosen.partial or cut_by(topk):
        raise Wrong(f"{chosen} are not all choices of a token")
    return _routing(Factor(experts), tokens, topk)


@rule("capacity")
def capacity(group: int, experts: int, factor: float, least: int = 4) -> int:
    """How many rows of a group an expert takes."""
    return max(least, min(group, int(group * factor / experts)))


@rule("kept")
def kept(chosen: Value, experts: int, capacity: int, group: int = 0) -> Value:
    """Which choices are taken, where all tokens of a group are on one rank."""
    del experts, capacity
    for i in range(group, len(chosen.dims)):
        check_whole(chosen, i, "what else its group chose")
    return replace(elementwise([chosen], "other"), grad=False)


@rule("exchange_counts")
def exchange_counts(routing: Routing, axis: Axis) -> Routing:
    """From rows that are cut by tokens over an axis to rows that are cut by experts."""
    if not axis.names:
        return routing
    tokens = [_without(dim, axis) for dim in routing.tokens]
    if list(routing.tokens) == tokens:
        raise Wrong(f"the tokens of {routing} are not cut over {' '.join(axis.names)}: nothing is to be exchanged")
    axis.ran("all_to_all", None)
    return _routing(_share(routing, axis), tokens, routing.topk, routing.dims[0])


@rule("own_counts")
def own_counts(routing: Routing, axis: Axis) -> Routing:
    """From rows that all ranks of an axis have to those of each rank's own experts."""
    if not axis.names:
        return routing
    if any(cut_by(dim) & set(axis.names) for dim in routing.tokens):
        raise Wrong(f"the tokens of {routing} are cut over {' '.join(axis.names)}: its own rows are not all there")
    return _routing(_share(routing, axis), routing.tokens, routing.topk, routing.dims[0])


def _share(routing: Routing, axis: Axis) -> Factor:
    size, axes, _ = routing.experts
    if axes or size % axis.size:
        raise Wrong(f"{size} experts{' of one rank' if axes else ''} do not divide by {axis.size}")
    return Factor(size // axis.size, axis.names)


def _without(dim: Dim, axis: Axis) -> Dim:
    """A dimension of tokens, whole along an axis."""
    return dimension([[_whole(f, axis) for f in segment] for segment in dim])


def _whole(factor: Factor, axis: Axis) -> Factor:
    left = tuple(a for a in factor.axes if a not in axis.names)
    return factor if left == factor.axes else Factor(factor.size * axis.size, left)


def _check_rows(rows: Value, dim: Dim, what: str) -> None:
    if agree(rows.dims[0], dim) is None:
        raise Wrong(f"{what} takes rows that lie as {spell(dim)}; those of {rows} lie as {spell(rows.dims[0])}")


@rule("dispatch")
def dispatch(x: Value, routing: Routing) -> Value:
    """A row for each choice of each token."""
    *tokens, size = x.dims
    if agree(product(tokens), product(routing.tokens)) is None:
        raise Wrong(f"{x} has not the tokens of {routing}")
    return meet([x, routing], (routing.dims[0], size), "multiply")


@rule("expert_linear")
def expert_linear(rows: Value, weight: Value, routing: Routing, transposed: bool = False) -> Value:
    """Each row with the matrix of its expert."""
    _check_rows(rows, routing.dims[0], "expert_linear")
    experts, *matrix = weight.dims
    before, after = matrix if transposed else matrix[::-1]
    _check_experts(experts, weight, routing)
    size = together([rows.dims[1], before], [rows, weight])
    return meet([rows, weight], (rows.dims[0], after), "multiply", cut_by(size))


@rule("expert_bias")
def expert_bias(rows: Value, bias: Value, routing: Routing) -> Value:
    """The bias of each row's expert added."""
    _check_rows(rows, routing.dims[0], "expert_bias")
    _check_experts(bias.dims[0], bias, routing)
    return meet([rows, bias], (rows.dims[0], together([rows.dims[1], bias.dims[1]], [rows, bias])), "add")


def _check_experts(dim: Dim, stack: Value, routing: Routing) -> None:
    if agree(dim, dimension([[routing.experts]])) is None:
        raise Wrong(f"{stack} does not hold the experts of {routing}")


@rule("combine")
def combine(rows: Value, weights: Value | None, routing: Routing) -> Value:
    """The weighted sum over the rows of each token."""
    _check_rows(rows, routing.dims[0], "combine")
    if routing.experts.axes:
        raise Wrong(f"{rows} are those of a rank's own experts: a token's other rows are elsewhere")
    values = [rows]
    if weights is not None:
        *tokens, topk = weights.dims
        if agree(product(tokens), product(routing.tokens)) is None or agree(topk, routing.topk) is None:
            raise Wrong(f"{weights} are not the weights of the choices of {routing}")
        values.append(weights)
    return meet(values, (*routing.tokens, rows.dims[1]), "multiply")


@rule("to_experts")
def to_experts(rows: Value, routing: Routing, axis: Axis) -> Value:
    """S -> S: each row to the rank of its expert."""
    return _moved(rows, routing, axis, "to_experts", back=False)


@rule("to_tokens")
def to_tokens(rows: Value, routing: Routing, axis: Axis) -> Value:
    """S -> S: each row back to the rank of its token."""
    return _moved(rows, routing, axis, "to_tokens", back=True)


def _moved(rows: Value, routing: Routing, axis: Axis, name: str, *, back: bool) -> Value:
    if not axis.names:
        return rows
    here, there = _ends(routing, axis, name, back=back)
    _check_rows(rows, here, name)
    axis.ran("all_to_all", "all_to_all", grad=rows.grad)
    return rows.shaped((there, *rows.dims[1:]))


@rule("own_rows")
def own_rows(rows: Value, routing: Routing, axis: Axis) -> Value:
    """R -> S: the rows of this rank's experts."""
    if not axis.names:
        return rows
    here, there = _ends(routing, axis, "own_rows", back=False)
    _check_rows(rows, here, "own_rows")
    if rows.grad and not set(axis.names) <= rows.replicated:
        raise Wrong(f"own_rows: the gradient of {rows} would be that of one rank's experts alone")
    return replace(rows, dims=(there, *rows.dims[1:]), replicated=rows.replicated - set(axis.names))


@rule("all_rows")
def all_rows(rows: Value, routing: Routing, axis: Axis) -> Value:
    """S -> P: this rank's rows among zeros."""
    if not axis.names:
        return rows
    here, there = _ends(routing, axis, "all_rows", back=True)
    _check_rows(rows, here, "all_rows")
    return replace(rows, dims=(there, *rows.dims[1:]), partial=rows.partial | set(axis.names))


def _ends(routing: Routing, axis: Axis, name: str, *, back: bool) -> tuple[Dim, Dim]:
    """How rows lie before and after they change hands."""
    if routing.before is None or routing.experts.axes != axis.names:
        raise Wrong(f"{name} takes a routing whose experts are cut over {' '.join(axis.names)}; {routing} is not")
    before, after = routing.before, routing.dims[0]
    return (after, before) if back else (before, after)
