"""Experts against the layout, and against the sizes of a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpar.errors import Diagnostic, Note
from graphpar.language.divide import divisors, not_divisible
from graphpar.language.schema import EXPERTS, TOKEN_DIMENSIONS, LayoutRule, Moe, Spec, base_name

FORMS = "top-k with stacked weights, weights[chosen], tokens sorted by expert, or a one-hot dispatch by einsum"


def check_moe(spec: Spec) -> tuple[Diagnostic, ...]:
    """Rules of a list that would lay out experts beside `moe`, or in its place. Needs no model."""
    rules = [rule for rule in spec.listed if base_name(rule.name) == EXPERTS]
    if spec.moe is not None:
        return tuple(_twice(rule, spec.moe) for rule in rules)
    found = ((rule, tokens) for rule in rules if (tokens := _same_ranks(rule, spec)))
    return tuple(_one_priority(rule, *tokens, spec) for rule, tokens in found)


def check_experts(spec: Spec, known: Mapping[str, int | None]) -> Iterable[Diagnostic]:
    """What `moe` asks of a model and does not find there; `known` is dimension to size."""
    moe = spec.moe
    if moe is None:
        return
    if not any(base_name(name) == EXPERTS for name in known):
        yield no_experts(moe, f"no dimension of the model is called `{EXPERTS}`")
    if moe.group is not None and moe.group in known and base_name(moe.group) not in TOKEN_DIMENSIONS:
        yield Diagnostic(
            "not-a-token-dimension",
            moe.span_of("group"),
            f"`{moe.group}` does not say which tokens belong together",
            why=(f"experts take tokens, and a token is one of {' x '.join(TOKEN_DIMENSIONS)}",),
            fix=f"group: {TOKEN_DIMENSIONS[0]}",
        )
    size, parts = known.get(EXPERTS), spec.mesh.sizes().get(moe.experts)
    if size and parts and size % parts:
        yield _uneven(moe, size, parts)


def no_experts(moe: Moe, why: str) -> Diagnostic:
    """`moe` in the spec of a model that has no experts, or none in a form that is recognised."""
    return Diagnostic(
        "no-experts",
        moe.span,
        "`moe` has no effect: there is no mixture of experts in this model",
        why=(why,),
        notes=(Note(f"one is recognised by its form: {FORMS}; a Python loop over experts is not"),),
        fix="delete `moe`",
    )


def _twice(rule: LayoutRule, moe: Moe) -> Diagnostic:
    return Diagnostic(
        "experts-twice",
        rule.span,
        f"`{rule}` and `moe` both say where experts live",
        why=("in a list, `experts` comes before or after other rules; in `moe` it comes first for the experts only",),
        notes=(Note(f"`moe` has `{moe.rule}`", moe.span),),
        fix="delete the rule",
    )


def _same_ranks(rule: LayoutRule, spec: Spec) -> tuple[str, LayoutRule] | None:
    """The first axis of a rule for experts that also cuts tokens where the rule holds, and what cuts them."""
    for region in spec.regions:
        if any(rule is own for own in region.layout):
            lists = region.layout if region.only else (*region.layout, *spec.layout)
            break
    else:
        lists = spec.listed
    tokens = [other for other in lists if base_name(other.name) in TOKEN_DIMENSIONS]
    return next(((axis, other) for axis in rule.axes for other in tokens if axis in other.axes), None)


def _one_priority(rule: LayoutRule, axis: str, tokens: LayoutRule, spec: Spec) -> Diagnostic:
    word = next((w for w in rule.written if axis in spec.mesh.expand(w)), axis)
    other = spec.mesh.expand(word)
    alias = (Note(f"`{word}` is another name of {' and '.join(other)}", spec.mesh.span),)
    return Diagnostic(
        "experts-on-data-axis",
        rule.span,
        f"`{rule}` and `{tokens}` name the same ranks for the same operations",
        why=(
            f"operations of experts have `{EXPERTS}` and `{base_name(tokens.name)}`, and an axis cuts one dimension of "
            "an operation",
            "in a list one of the two would win everywhere, for an all-gather and a reduce-scatter more in each layer; "
            "`moe` has two orders: tokens first around the experts, experts first within them",
        ),
        notes=(Note(f"`{tokens}` cuts tokens by `{axis}`", tokens.span), *(alias if word != axis else ())),
        fix=f"moe: {{experts: {axis if len(other) > 1 else word}}}   # in place of line {rule.span.line}",
    )


def _uneven(moe: Moe, size: int, parts: int) -> Diagnostic:
    axis, possible = moe.experts, divisors(size)
    nearest = [max(n for n in possible if n <= parts), min((n for n in possible if n > parts), default=1)]
    fits = [f"{axis}: {n}" for n in nearest if n > 1]
    alias = f"`{moe.written}` is another name of {axis}" if moe.written not in ("", axis) else ""
    mend = "   # in `mesh`; or ".join(fits) if fits[1:] else f"{fits[0]}   # in `mesh`" if fits else "delete `moe`"
    return not_divisible(moe.rule, size, parts, axes=axis, why=(alias,) if alias else (), mend=mend)
