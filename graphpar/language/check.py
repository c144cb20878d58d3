"""A spec against the names of one model. Nothing here knows how the names were found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpar.errors import FULL_LIST, Diagnostic, Note, Span, any_of, suggestions
from graphpar.language.check_moe import check_experts
from graphpar.language.schema import TOKEN_DIMENSIONS, LayoutRule, Spec, base_name
from graphpar.language.selectors import Selector, selects
from graphpar.language.unmatched import ModelNames, explain_no_match, explain_path, out_of_range
from graphpar.notation import names_of


def check_names(
    spec: Spec, known: Mapping[str, int | None], where: Mapping[str, str], model: ModelNames | None = None
) -> tuple[Diagnostic, ...]:
    """Everything in the spec that the model does not have.

    `known`: dimension to size, None where it is symbolic; `where`: dimension to the place that gives it, in words. With
    `model`, selectors are checked too. The result is empty if the spec fits.
    """
    found = [*_unknown_dimensions(spec, known), *_sizes(spec, known, where), *check_data_axes(spec)]
    found += check_experts(spec, known)
    return (*found, *(_selectors(spec, model) if model else ()))


def check_data_axes(spec: Spec) -> tuple[Diagnostic, ...]:
    """Rules that put something other than tokens on a mesh axis that cuts the batch. Needs no model."""
    data = spec.data_axes
    by_axis = {axis: rule for rule in reversed(spec.layout) if rule.name == "batch" for axis in rule.axes}
    return tuple(
        _not_tokens(spec, rule, axis, by_axis[axis])
        for rule in spec.listed
        for axis in rule.axes
        if axis in data and base_name(rule.name) not in TOKEN_DIMENSIONS
    )


def unused_rule(
    rule: LayoutRule, reason: str, claimed_by: LayoutRule | None = None, fix: str | None = None
) -> Diagnostic:
    """A rule that no op follows; `reason` says why with the numbers, `claimed_by` is the rule that came first."""
    notes = (Note(f"`{claimed_by}` comes first", claimed_by.span),) if claimed_by else ()
    mend = fix or (
        f"delete line {rule.span.line}, or give `{rule.name}` a mesh axis of its own"
        if claimed_by
        else "delete the rule"
    )
    return Diagnostic(
        "unused-rule", rule.span, f"rule `{rule}` never takes effect", why=(reason,), notes=notes, fix=mend
    )


def _not_tokens(spec: Spec, rule: LayoutRule, axis: str, batch: LayoutRule) -> Diagnostic:
    alias = next((word for word in rule.written if axis in spec.mesh.expand(word) and word != axis), None)
    same = f" (`{alias}` is another name of it)" if alias else ""
    return Diagnostic(
        "not-a-token-dimension",
        rule.axes_span,
        f"`{rule.name}` cannot be cut by data axis `{axis}`{same}",
        why=(
            f"`{axis}` cuts `batch`, so its ranks hold different tokens; next to that, a cut of `{rule.name}` would "
            "mean one thing before `batch` in the list and another after it",
        ),
        notes=(
            Note(f"`{batch}` makes `{axis}` a data axis", batch.span),
            Note(
                "storing parameters in pieces on a data axis is the job of `store`, not available yet in this version"
            ),
        ),
        fix=f"give `{rule.name}` a mesh axis that does not cut `batch`",
    )


def _unknown_dimensions(spec: Spec, known: Mapping[str, int | None]) -> Iterable[Diagnostic]:
    places: list[tuple[str, Span, str]] = []
    for rule in spec.listed:
        places.append((rule.name, rule.span, f"- {{}}: {str(rule).split(': ', 1)[1]}"))
    places += [(name, dim.span, "{}") for name, dim in spec.dims.items()]
    places += [(name, spec.uneven.spans[name], f"{{}}: {value}") for name, value in spec.uneven.by_name.items()]
    places += [(spec.moe.group, spec.moe.span_of("group"), "group: {}")] if spec.moe and spec.moe.group else []
    for dim in spec.dims.values():
        places += [(name, dim.span, "{}") for name in names_of(((dim.equals,),) if dim.equals is not None else ())]
    return [_unknown(name, span, fix, known) for name, span, fix in places if not _is_known(name, known)]


def _is_known(name: str, known: Mapping[str, int | None]) -> bool:
    return name in known or name.removesuffix("'") in known


def _unknown(name: str, span: Span, fix: str, known: Mapping[str, int | None]) -> Diagnostic:
    prime = "'" if name.endswith("'") else ""
    near = suggestions(name, [f"{label}{prime}" for label in known])
    sizes = [label if size is None else f"{label}={size}" for label, size in known.items()]
    shown = " ".join(sizes) if len(sizes) <= FULL_LIST else f"{len(sizes)} of them; `graphpar names MODEL` lists them"
    return Diagnostic(
        "unknown-dimension",
        span,
        f"no dimension is called `{name}`{f'; did you mean {any_of(near)}?' if near else ''}",
        notes=(Note(f"dimensions found in the model: {shown or 'none'}"),),
        fix=fix.format(near[0]) if near else None,
    )


def _sizes(spec: Spec, known: Mapping[str, int | None], where: Mapping[str, str]) -> Iterable[Diagnostic]:
    for name, dim in spec.dims.items():
        size = known.get(name)
        place = f" ({where[name]})" if name in where else ""
        if size is None:
            continue
        if dim.size is not None and dim.size != size:
            message = f"`dims` says {name} = {dim.size}, and the model has {size}"
            fix = f"{name}: {size}   # or build the model with the configuration you meant (model.args)"
            yield Diagnostic("size-mismatch", dim.span, message, why=(f"{name} = {size}{place}",), fix=fix)
        if dim.multiple_of is not None and size % dim.multiple_of:
            message = f"{name} is no multiple of {dim.multiple_of}, as `dims` says it is"
            why = f"{size} mod {dim.multiple_of} = {size % dim.multiple_of}{place}"
            yield Diagnostic("size-mismatch", dim.span, message, why=(why,))


def _selectors(spec: Spec, model: ModelNames) -> Iterable[Diagnostic]:
    for region in spec.regions:
        for selector in region.at:
            if not model.takes(selector):
                yield explain_no_match(selector, model)
            elif problem := out_of_range(selector, model):
                yield problem
    for rule in spec.names:
        if not _names_parameter(rule.at, model):
            yield explain_path(rule.at, (*model.parameters, *model.paths), model)


def _names_parameter(selector: Selector, model: ModelNames) -> bool:
    return any(selects(selector, path, lists=model.lists, aliases=model.aliases) for path in model.parameters)
