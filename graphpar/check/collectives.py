"""The functions of the runtime: the only ones in which ranks meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from graphpar.check.contraction import check_whole, token_loss
from graphpar.check.dims import Dim, Factor, Segment, Wrong, agree, cut_by, dimension, length, part, spell, split
from graphpar.check.rules import Axis, Rule, rule
from graphpar.check.value import State, Value, elementwise, meet

Blocks = int | tuple[int, ...]
WORD = {
    "I": "the same on every rank",
    "R": "the same on every rank, its gradient a summand",
    "S": "cut",
    "P": "a summand",
}


def _check(x: Value, axis: Axis, state: State, name: str) -> None:
    for one in axis.names:
        have = x.state(one)
        if have != state and not ({have, state} == {"I", "R"} and not x.grad):
            raise Wrong(f"{name} over {one} needs something that is {WORD[state]} there; {x} is {WORD[have]}")


def _become(x: Value, axis: Axis, state: State, dims: tuple[Dim, ...] | None = None) -> Value:
    names = frozenset(axis.names)
    return replace(
        x,
        dims=x.dims if dims is None else dims,
        partial=x.partial | names if state == "P" else x.partial - names,
        replicated=x.replicated | names if state == "R" else x.replicated - names,
    )


def _cut(x: Value, axis: Axis, dim: int, blocks: Blocks) -> tuple[Dim, ...]:
    """The dimensions after cutting one of them: each of the equal blocks, or each segment of these local sizes."""
    at = x.at(dim)
    whole = x.dims[at]
    if isinstance(blocks, tuple):
        if length(whole) != sum(blocks) * axis.size:
            raise Wrong(f"blocks {blocks} are not the parts of {spell(whole)} of {x}")
        starts = [axis.size * sum(blocks[:i]) for i in range(len(blocks))]
        parts = [part(whole, start, start + axis.size * size) for start, size in zip(starts, blocks, strict=True)]
        return _put(x, at, dimension([_cut_segment((), p[0], axis, x) for p in parts]))
    if length(whole) % blocks:
        raise Wrong(f"{spell(whole)} of {x} has no {blocks} equal blocks")
    before, inside = split(whole, [blocks, length(whole) // blocks])
    return _put(x, at, dimension([_cut_segment(before[0], segment, axis, x) for segment in inside]))


def _cut_segment(before: Segment, segment: Segment, axis: Axis, x: Value) -> Segment:
    first, *rest = segment
    if first.size % axis.size:
        raise Wrong(f"{first.size} of {x} does not divide by {axis.size}")
    return (*before, Factor(1, first.axes), Factor(first.size // axis.size, axis.names), *rest)


def _joined(x: Value, axis: Axis, dim: int, blocks: Blocks, name: str) -> tuple[Dim, ...]:
    """The dimensions after joining one of them, each segment or all equal blocks of it."""
    at = x.at(dim)
    if isinstance(blocks, tuple) and blocks != (sizes := tuple(length((s,)) for s in x.dims[at])):
        raise Wrong(f"{name}: blocks {blocks} are not the parts {sizes} of {spell(x.dims[at])}")
    before = None if isinstance(blocks, tuple) else blocks
    return _put(x, at, dimension([_join_segment(s, axis, before, x, name) for s in x.dims[at]]))


def _tail(axes: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return axes[len(axes) - len(names) :] == names


def _join_segment(segment: Segment, axis: Axis, blocks: int | None, x: Value, name: str) -> Segment:
    before = 1
    for i, factor in enumerate(segment):
        if _tail(factor.axes, axis.names):
            if blocks not in (None, before):
                raise Wrong(f"{name}: {before} blocks of {x} are cut over {' '.join(axis.names)}, not {blocks}")
            joined = Factor(factor.size * axis.size, factor.axes[: -len(axis.names)])
            return (*segment[:i], joined, *segment[i + 1 :])
        before *= factor.size
    raise Wrong(f"{name}: {x} is not cut over {' '.join(axis.names)} in that dimension, or not there last")


def _put(x: Value, at: int, dim: Dim) -> tuple[Dim, ...]:
    return (*x.dims[:at], dim, *x.dims[at + 1 :])


@dataclass(frozen=True)
class Step:
    """A function of the runtime: the states that it leads between, what runs forward and backward, and what it does
    to the dimension that it is given, if any.
    """

    have: State
    want: State
    forward: str | None
    backward: str | None
    dimension: Literal["cut", "joined"] | None


STEPS = {
    "all_reduce": Step("P", "I", "all_reduce", None, None),
    "grad_all_reduce": Step("I", "R", None, "all_reduce", None),
    "all_gather": Step("S", "R", "all_gather", "reduce_scatter", "joined"),
    "all_gather_same": Step("S", "I", "all_gather", None, "joined"),
    "reduce_scatter": Step("P", "S", "reduce_scatter", "all_gather", "cut"),
    "slice_": Step("I", "S", None, "all_gather", "cut"),
    "slice_partial": Step("R", "S", None, None, "cut"),
    "pad_partial": Step("S", "P", None, None, "joined"),
    "first_only": Step("I", "P", None, None, None),
    "first_only_both": Step("R", "P", None, None, None),
}


def _rule(name: str, step: Step) -> Rule:
    def take(x: Value, axis: Axis, dim: int | None = None, blocks: Blocks = 1) -> Value:
        if (dim is None) != (step.dimension is None):
            raise Wrong(f"{name} takes {'a dimension' if step.dimension else 'no dimension'}")
        if not axis.names:
            return x
        _check(x, axis, step.have, name)
        if name == "grad_all_reduce" and not x.grad:
            raise Wrong(f"{x} has no gradient that could be summed")
        if step.forward or (step.backward and x.grad):
            axis.ran(step.forward, step.backward, grad=x.grad)
        if dim is None:
            return _become(x, axis, step.want)
        dims = _cut(x, axis, dim, blocks) if step.dimension == "cut" else _joined(x, axis, dim, blocks, name)
        return _become(x, axis, step.want, dims)

    return take


for _name, _step in STEPS.items():
    rule(_name)(_rule(_name, _step))


@rule("all_to_all")
def all_to_all(
    x: Value, axis: Axis, split_dim: int, concat_dim: int, split_blocks: Blocks = 1, concat_blocks: Blocks = 1
) -> Value:
    """S -> S'."""
    if not axis.names:
        return x
    _check(x, axis, "S", "all_to_all")
    axis.ran("all_to_all", "all_to_all", grad=x.grad)
    joined = x.shaped(_joined(x, axis, concat_dim, concat_blocks, "all_to_all"))
    return joined.shaped(_cut(joined, axis, split_dim, split_blocks))


@rule("all_reduce_max", "all_reduce_count")
def without_gradient(x: Value, axis: Axis) -> Value:
    """A sum or maximum that has no gradient."""
    if axis.names:
        axis.ran("all_reduce", None)
    return replace(_become(x, axis, "I"), grad=False)


@rule("vocab_embedding")
def vocab_embedding(ids: Value, weight: Value, axis: Axis, padding_idx: int | None = None) -> Value:
    """Rows of a table that is cut by rows: P."""
    del padding_idx
    _check_rows(weight, 0, axis)
    return meet([ids, weight], (*ids.dims, *weight.dims[1:]), "other", frozenset(axis.names))


def _check_rows(x: Value, dim: int, axis: Axis) -> None:
    if agree(x.dims[dim], ((Factor(length(x.dims[dim]), axis.names),),)) is None:
        raise Wrong(
            f"{spell(x.dims[dim])} of {x} is not cut over {' '.join(axis.names) or 'no axis'}, as this takes it"
        )


@rule("vocab_cross_entropy")
def vocab_cross_entropy(
    logits: Value, labels: Value, axis: Axis, *, reduction: str = "sum", vocab: int, **_: Any
) -> Value:
    """The loss of logits whose vocabulary is cut: I."""
    _check_rows(logits, -1, axis)
    if vocab > length(logits.dims[-1]) * axis.size:
        raise Wrong(f"a vocabulary of {vocab} is more than {axis.size} parts of {length(logits.dims[-1])}")
    flat = Value(logits.dims[:-1])
    if axis.names:
        axis.ran("all_gather", None)
    lost = replace(logits, dims=(*flat.dims, ((Factor(vocab),),)))
    if (labels.cut | flat.cut) & set(axis.names):
        raise Wrong(f"{logits} and labels {labels} are cut over {' '.join(axis.names)} in two ways")
    return token_loss(lost, labels, reduction)


@rule("split_layer_norm")
def split_layer_norm(
    x: Value, weight: Value | None, bias: Value | None, axis: Axis, size: int, eps: float = 1e-5
) -> Value:
    """Statistics over a last dimension that is cut."""
    del eps
    y = _split(x, axis, size, "all_gather")
    y = y if weight is None else elementwise([y, weight], "multiply")
    return y if bias is None else elementwise([y, bias], "add")


@rule("split_rms_norm")
def split_rms_norm(x: Value, weight: Value | None, axis: Axis, size: int, eps: float | None = None) -> Value:
    """Mean squares over a last dimension that is cut."""
    del eps
    y = _split(x, axis, size, "all_reduce")
    return y if weight is None else elementwise([y, weight], "multiply")


def _split(x: Value, axis: Axis, size: int, forward: str) -> Value:
    if not axis.names:
        check_whole(x, len(x.dims) - 1, "a statistic")
        return elementwise([x], "other")
    _check_rows(x, -1, axis)
    if length(x.dims[-1]) * axis.size != size:
        raise Wrong(f"{axis.size} parts of {length(x.dims[-1])} do not make {size}")
    axis.ran(forward, "all_reduce", grad=x.grad)
    return elementwise([x], "other")


@rule("split_softmax")
def split_softmax(x: Value, dim: int, axis: Axis) -> Value:
    """A softmax along a dimension that is cut."""
    if axis.names:
        if not set(axis.names) <= cut_by(x.dims[x.at(dim)]):
            raise Wrong(f"{x} is not cut over {' '.join(axis.names)} along dimension {dim}")
        axis.ran("all_gather", "all_reduce", grad=x.grad)
    return elementwise([x], "other")
