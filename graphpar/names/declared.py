"""What a spec declares about names: axes of parameters, sizes of dimensions, rules of ops.

Declarations are checked against the graph, never believed: one that contradicts it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphpar.errors import Diagnostic, Span
from graphpar.ir.graph import Node
from graphpar.language.schema import NameRule, Spec
from graphpar.language.selectors import selects
from graphpar.names.infer import Unified
from graphpar.names.labels import Labels
from graphpar.notation import Segment, format_axis
from graphpar.ops.rules import with_marks


@dataclass(frozen=True)
class Declared:
    """The declarations of a spec."""

    names: tuple[NameRule, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    ops: Mapping[str, str] = field(default_factory=dict[str, str])
    places: Mapping[str, Span] = field(default_factory=dict[str, Span])  # of the ops' rules

    @classmethod
    def of(cls, spec: Spec) -> Declared:
        """The declarations of a spec."""
        sizes = {name: dim.size for name, dim in spec.dims.items() if dim.size is not None}
        ops = {name: with_marks(rule.rule) for name, rule in spec.ops.items()}
        return cls(spec.names, sizes, ops, {name: rule.rule_span for name, rule in spec.ops.items()})


def declare(unified: Unified, labels: Labels, declared: Declared) -> list[Diagnostic]:
    """Attach the declared names; returns what contradicts the graph."""
    problems: list[Diagnostic] = []
    for rule in declared.names:
        for node in _selected(unified, rule):
            problems += _attach(unified, labels, declared, rule, node)
    return problems


def _selected(unified: Unified, rule: NameRule) -> Iterator[Node]:
    graph = unified.graph
    lists, aliases = graph.lists(), graph.aliases()
    for node in graph.nodes:
        if node.op != "parameter":
            continue
        members = graph.members(node.attrs["name"])
        names = [n for member in members for n in (member, *graph.tensors[member].aliases)]
        if any(selects(rule.at, n, lists=lists, aliases=aliases) for n in names):
            yield node


def _attach(u: Unified, labels: Labels, declared: Declared, rule: NameRule, node: Node) -> list[Diagnostic]:
    axes = u.axes(node)
    if len(rule.axes) != len(axes):
        return [_wrong(rule, node, f"it has {len(axes)} dimensions, and {len(rule.axes)} are named")]
    problems: list[Diagnostic] = []
    for axis, found, size in zip(rule.axes, axes, node.shape, strict=True):
        if len(axis) == 1:
            problems += _product(u, labels, declared, rule, node, axis[0], found, size)
    return problems


def _product(
    u: Unified,
    labels: Labels,
    declared: Declared,
    rule: NameRule,
    node: Node,
    items: Segment,
    found: tuple[int, ...],
    size: Any,
) -> list[Diagnostic]:
    """Name the factors of one dimension, refining it if the graph does not tell them apart."""
    if len(items) == 1 and items[0].name == "_":
        return []
    if len(found) == 1 and len(items) > 1:
        sizes = _sizes(items, declared, size)
        if sizes is None:
            return [
                _wrong(
                    rule,
                    node,
                    f"the sizes of {format_axis((items,))} do not multiply to {size}: declare them under `dims`",
                )
            ]
        found = u.atoms.refine(found[0], sizes, [isinstance(i.name, int) for i in items])
    if len(found) != len(items):
        return [_wrong(rule, node, f"the graph makes a dimension of {len(found)} factors of it, not {len(items)}")]
    problems: list[Diagnostic] = []
    for item, atom in zip(items, found, strict=True):
        actual = u.atoms.size[u.atoms.find(atom)]
        if isinstance(item.name, int):
            if item.name != actual:
                problems.append(_wrong(rule, node, f"the factor {item.name} has size {actual}"))
            u.atoms.constant.add(u.atoms.find(atom))
            continue
        known = labels.names.setdefault(u.atoms.find(atom), item.name)
        labels.why.setdefault(u.atoms.find(atom), f"`names` of the spec, line {rule.span.line}")
        if known != item.name:
            problems.append(_wrong(rule, node, f"`{item.name}` is the dimension that is called `{known}` elsewhere"))
    return problems


def _sizes(items: Segment, declared: Declared, total: int) -> list[int] | None:
    sizes = [i.name if isinstance(i.name, int) else declared.sizes.get(i.name, 0) for i in items]
    product = 1
    for s in sizes:
        product *= s or 1
    if sizes.count(0) == 1 and total % product == 0:
        sizes[sizes.index(0)], product = total // product, total
    return sizes if product == total and 0 not in sizes else None


def _wrong(rule: NameRule, node: Node, why: str) -> Diagnostic:
    return Diagnostic(
        "names-contradict",
        rule.axes_span,
        f"the names given to `{rule.at}` contradict the graph",
        why=(f"{node.attrs['name']} has the shape {list(node.shape)}", why),
        fix="delete the line: `graphpar names` shows what is inferred without it",
    )
