"""What is wrong with a spec for one model, before and after placement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from graphpar.errors import Diagnostic, Span
from graphpar.ir.graph import Node
from graphpar.language.check import check_names, unused_rule
from graphpar.language.check_moe import no_experts
from graphpar.language.schema import LayoutRule, Spec
from graphpar.language.unmatched import ModelNames
from graphpar.names.named import Named
from graphpar.names.unknown import without_rule
from graphpar.place.place import Placed


def check_named(named: Named, spec: Spec) -> tuple[Diagnostic, ...]:
    """Names in the spec that the model does not have, and ops of the model that have no rule."""
    sizes = named.sizes()
    where = {n: named.why.get(n, "") for n in sizes}
    missing = without_rule(unknown_ops(named))
    if missing:
        return tuple(missing)  # a name that the spec asks for may be missing for want of the rule
    return (*check_names(spec, sizes, where, model_names(named)), *unkept(spec, sizes))


def unkept(spec: Spec, sizes: Mapping[str, int | None]) -> Iterable[Diagnostic]:
    """Words of the language that nothing acts on yet, and declared multiples that do not hold."""
    words = {"grad_reduce_dtype": spec.numerics.grad_reduce_dtype, "deterministic": spec.numerics.deterministic or None}
    for word in (w for w, value in words.items() if value is not None):
        yield _not_yet(f"numerics.{word}", None, f"delete `{word}`")
    for name, dim in spec.dims.items():
        size = sizes.get(name)
        if dim.equals is not None:
            yield _not_yet(f"dims.{name}.is", dim.span, f"delete `is` of `{name}`")
        if dim.multiple_of and size is not None and size % dim.multiple_of:
            above = -(-size // dim.multiple_of) * dim.multiple_of
            yield Diagnostic(
                "size-mismatch",
                dim.span,
                f"`{name}` = {size} is no multiple of {dim.multiple_of}",
                why=(f"{size} mod {dim.multiple_of} = {size % dim.multiple_of}",),
                fix=f"delete `multiple_of`, or build the model with `{name}` = {above}",
            )


def _not_yet(what: str, span: Span | None, fix: str) -> Diagnostic:
    return Diagnostic(
        "not-available",
        span,
        f"`{what}` is not available in this version",
        why=("a word that changes nothing would be a promise that is not kept",),
        fix=fix,
    )


def model_names(named: Named) -> ModelNames:
    """What selectors can refer to."""
    graph = named.graph
    parameters = [n for t in graph.tensors.values() for n in (t.name, *t.aliases)]
    ops = [
        (n.op, p) for n in graph.nodes if n.op not in ("parameter", "buffer") for p in graph.members(n.origin.module)
    ]
    lines = sorted({(n.origin.file, n.origin.line) for n in graph.nodes if n.origin.file})
    inputs = [f"input:{n.attrs['name']}" for n in graph.inputs]
    return ModelNames([*graph.modules, *inputs], parameters, ops, lines, graph.lists(), graph.aliases())


def unknown_ops(named: Named) -> Iterable[Node]:
    """Ops without a rule. A value that is neither fed nor trained may be computed whole by any op."""
    fed: set[Node] = set()
    for node in named.graph.nodes:
        if node.op in ("input", "parameter") or any(a in fed for a in node.operands):
            fed.add(node)
    return dict.fromkeys(n for n in named.unknown if n in fed)


def check_placed(placed: Placed) -> tuple[Diagnostic, ...]:
    """Dimensions that do not divide, rules that never took effect, states that no exact step connects."""
    layout = placed.layout
    problems = list(layout.problems.values())
    blamed = {d.span for d in problems}
    for rule in layout.spec.rules:
        live = [a for a in rule.axes if layout.mesh[a] > 1]
        if live and rule not in layout.used and rule.span not in blamed:
            problems.append(_unused(rule, placed))
    for value, consumer, how in placed.refused:
        problems.append(_refused(value, consumer, how))
    return tuple(problems)


def _unused(rule: LayoutRule, placed: Placed) -> Diagnostic:
    moe = placed.layout.spec.moe
    if moe is None or rule != moe.rule:
        return unused_rule(rule, *_never(rule, placed))
    return no_experts(
        moe, f"`{rule.name}` occurs in {len(_having(rule, placed))} ops, and none of them can be cut by it"
    )


def _having(rule: LayoutRule, placed: Placed) -> list[Node]:
    """The ops whose result has the dimension of a rule."""
    named = placed.layout.named
    ids = {g[0] for g in named.dims.get(rule.name, ())}
    return [n for n in named.graph.nodes if any(f.id in ids for a in n.named for f in a.factors)]


def _never(rule: LayoutRule, placed: Placed) -> tuple[str, LayoutRule | None]:
    """Why a rule never claimed anything, and the rule that always came first."""
    first = [r for r in placed.layout.spec.layout if r is not rule and set(r.axes) & set(rule.axes)]
    count = len(_having(rule, placed))
    if first:
        return (
            f"in each of the {count} ops that have `{rule.name}`, an earlier rule claims {', '.join(rule.axes)}",
            first[0],
        )
    return f"`{rule.name}` occurs in {count} ops, and each of them needs it whole", None


def _refused(value: Node, consumer: Node, how: str) -> Diagnostic:
    place = Span(consumer.origin.file, consumer.origin.line, 1, 1) if consumer.origin.file else None
    return Diagnostic(
        "no-transition",
        place,
        f"`{consumer.op}` in {consumer.origin.module or 'the model'} cannot be given its operand exactly",
        why=(f"{value.op} leaves it as {how}",),
        kind="model",
    )
