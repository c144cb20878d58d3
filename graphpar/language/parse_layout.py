"""The mesh and the layout rules of a spec."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphpar.errors import Note, Span, any_of, listing, suggestions
from graphpar.language.reader import Listing, Mapping, Node, Scalar
from graphpar.language.scalars import Problems, integer, is_null, items, kind_of, named_entries, word
from graphpar.language.schema import LayoutRule, MeshAxis, MeshSpec
from graphpar.notation import NAME_PATTERN

_DIMENSION = re.compile(rf"{NAME_PATTERN}'?")
_AXIS = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = ("rest", "none", "aliases", "default")


def parse_mesh(node: Node, problems: Problems) -> MeshSpec | None:
    """`{dp: rest, tp: 4, aliases: {ep: dp}}`, outermost axis first; None if there are no axes.

    An axis with a mistake keeps its name, with size 1, so that the rules can still be checked against it.
    """
    entries = named_entries(node, "`mesh`", problems)
    axes = [axis for key, value in entries if key.text != "aliases" and (axis := _parse_axis(key, value, problems))]
    if isinstance(node, Mapping) and not any(key.text != "aliases" for key, _ in entries):
        problems.add("wrong-type", node.span, "`mesh` names no axis", fix="mesh: {tp: 2}")
    _one_rest([axis for axis in axes if axis.size == "rest"], problems)
    known = [axis.name for axis in axes]
    aliases: dict[str, tuple[str, ...]] = {}
    alias_node = node.get("aliases") if isinstance(node, Mapping) else None
    for key, value in named_entries(alias_node, "`aliases`", problems) if alias_node else ():
        if key.text in known:
            problems.add("bad-name", key.span, f"`{key.text}` is an axis already, so it cannot be a second name of one")
        elif _name_of_axis(key, problems) and (targets := _axis_words(value, problems)):
            aliases[key.text] = known_axes(targets, known, problems)
    mesh = MeshSpec(tuple(axes), aliases, node.span)
    return mesh if axes else None


def parse_layout(
    node: Node, mesh: MeshSpec | None, problems: Problems, what: str = "`layout`"
) -> tuple[LayoutRule, ...]:
    """An ordered list of `- dimension: axis`, `- dimension: [axis, axis]` or `- dimension: none`."""
    if isinstance(node, Mapping):
        rules = "\n".join(f"  - {key.text}: {_written(value)}" for key, value in node.entries)
        why = "the first rule that fits an op wins, and the keys of a mapping have no order"
        problems.add(
            "layout-is-a-list", node.span, f"{what} is a list of rules, not a mapping", why=why, fix=f"layout:\n{rules}"
        )
        return ()
    written = items(node, what, problems, fix="layout:\n  - heads: tp")
    rules = tuple(rule for item in written if (rule := _parse_rule(item, mesh, problems)))
    _check_repeats(rules, problems)
    return rules


def known_axes(
    words: list[Scalar], known: Sequence[str], problems: Problems, mesh: Span | None = None
) -> tuple[str, ...]:
    """Those of the words that are axes or aliases; notes a problem for each other one. `mesh` is where it stands."""
    for scalar in words:
        if scalar.text not in known:
            near = suggestions(scalar.text, known)
            problems.add(
                "unknown-mesh-axis",
                scalar.span,
                f"no mesh axis is called `{scalar.text}`{f'; did you mean `{near[0]}`?' if len(near) == 1 else ''}",
                notes=(Note(listing(known, "mesh axes"), mesh),),
                fix=f"use {any_of(near or known)}, or add `{scalar.text}: N` to the mesh" if known else None,
            )
    return tuple(scalar.text for scalar in words if scalar.text in known)


def _parse_axis(key: Scalar, value: Node, problems: Problems) -> MeshAxis | None:
    if not _name_of_axis(key, problems):
        return None
    if isinstance(value, Scalar) and value.plain and value.text == "rest":
        return MeshAxis(key.text, "rest", key.span)
    size = integer(value, f"the size of mesh axis `{key.text}`, a number or `rest`,", problems, fix=f"{key.text}: 2")
    return MeshAxis(key.text, size or 1, key.span)


def _one_rest(axes: Sequence[MeshAxis], problems: Problems) -> None:
    for axis in axes[1:]:
        problems.add(
            "two-rests",
            axis.span,
            f"`rest` is given twice, for `{axes[0].name}` and for `{axis.name}`",
            why="rest = ranks / product of the other axes, which is one equation; two unknowns have many solutions",
            notes=(Note("the first one", axes[0].span),),
            fix=f"{axis.name}: 1",
        )


def _parse_rule(node: Node, mesh: MeshSpec | None, problems: Problems) -> LayoutRule | None:
    if not isinstance(node, Mapping):
        fix = f"- {node.text}: AXIS" if isinstance(node, Scalar) and not is_null(node) else "- heads: tp"
        problems.add(
            "wrong-type", node.span, f"a rule `- dimension: axis` is expected here, not {kind_of(node)}", fix=fix
        )
        return None
    if len(node.entries) != 1:
        _several(
            node.entries[1][0].span if node.entries else node.span, [(k.text, v) for k, v in node.entries], problems
        )
        return None
    key, value = node.entries[0]
    if "," in key.text:
        _several(key.span, [(name.strip(), value) for name in key.text.split(",")], problems)
        return None
    name = _dimension(key, problems)
    axes = _parse_target(key.text, value, mesh, problems)
    return LayoutRule(name, axes[1], key.span, value.span, axes[0]) if name and axes is not None else None


def _several(span: Span, entries: list[tuple[str, Node]], problems: Problems) -> None:
    names = ", ".join(name for name, _ in entries)
    fix = "\n".join(f"- {name}: {_written(value)}" for name, value in entries)
    why = "the order of the rules decides which dimension gets an axis first; two names in one rule would have no order"
    problems.add(
        "one-dimension-per-rule", span, f"a rule names one dimension, this one names `{names}`", why=why, fix=fix
    )


def _dimension(key: Scalar, problems: Problems) -> str | None:
    name = word(key, "a dimension", problems)
    if name is not None and not _DIMENSION.fullmatch(name):
        why = "a name has lower-case letters, digits and _, then perhaps .0 or .half, then perhaps '"
        problems.add("bad-name", key.span, f"`{name}` cannot be the name of a dimension", why=why)
        return None
    return name


def _parse_target(
    name: str, node: Node, mesh: MeshSpec | None, problems: Problems
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The axes as written and with aliases resolved; None if there is a mistake."""
    if isinstance(node, Scalar) and node.text == "none":
        return (), ()
    before = len(problems.found)
    words = _axis_words(node, problems, fix=f"{name}: none", rule=name)
    if words and mesh is not None:
        known = known_axes(words, mesh.names, problems, mesh.span)
        axes = [(scalar, axis) for scalar in words if scalar.text in known for axis in mesh.expand(scalar.text)]
        _check_twice(name, axes, problems)
        return (known, tuple(axis for _, axis in axes)) if len(problems.found) == before else None
    written = tuple(scalar.text for scalar in words)
    return (written, written) if len(problems.found) == before else None


def _axis_words(node: Node, problems: Problems, *, fix: str | None = None, rule: str = "") -> list[Scalar]:
    """The scalars of one axis or of a list of axes."""
    if isinstance(node, Scalar) and "," in node.text:
        parts = ", ".join(part.strip() for part in node.text.split(","))
        problems.add("wrong-type", node.span, "several axes are written as a list", fix=f"{rule or 'name'}: [{parts}]")
        return []
    nodes = node.items if isinstance(node, Listing) else (node,)
    if not nodes:
        problems.add("wrong-type", node.span, "a mesh axis is expected in this list", fix=fix)
    found: list[Scalar] = []
    for item in nodes:
        if word(item, "a mesh axis or `none`" if rule else "a mesh axis", problems, fix=fix) is None or not isinstance(
            item, Scalar
        ):
            continue
        if item.text == "none":
            problems.add("wrong-type", item.span, "`none` stands alone, it is no axis of a list", fix=fix)
        else:
            found.append(item)
    return found


def _check_twice(name: str, axes: list[tuple[Scalar, str]], problems: Problems) -> None:
    seen: dict[str, Scalar] = {}
    for scalar, axis in axes:
        if axis in seen:
            first = seen[axis].text
            same = "" if first == scalar.text == axis else f" (`{first}` and `{scalar.text}` are the same ranks)"
            why = "an axis that has cut a dimension has no ranks left to cut it again"
            problems.add("axis-twice", scalar.span, f"`{name}` is given to mesh axis `{axis}` twice{same}", why=why)
        seen.setdefault(axis, scalar)


def _check_repeats(rules: tuple[LayoutRule, ...], problems: Problems) -> None:
    """Several rules for one dimension add up, outermost first; an axis may come once, and nothing follows `none`."""
    claimed: dict[tuple[str, str], LayoutRule] = {}
    ended: dict[str, LayoutRule] = {}
    for rule in rules:
        if end := ended.get(rule.name):
            why = f"`{end}` ends the search for `{rule.name}`, and this rule comes after it"
            note = Note("the rule that ends it", end.span)
            problems.add(
                "unused-rule",
                rule.span,
                f"rule `{rule}` never takes effect",
                why=why,
                notes=(note,),
                fix="delete one of the two",
            )
        for axis in dict.fromkeys(rule.axes):
            if first := claimed.get((rule.name, axis)):
                why = "an axis that has cut a dimension has no ranks left to cut it again"
                note = Note(f"`{first}` gives it first", first.span)
                message = f"`{rule.name}` is given to mesh axis `{axis}` twice"
                problems.add("axis-twice", rule.axes_span, message, why=why, notes=(note,), fix="delete one of the two")
            claimed.setdefault((rule.name, axis), rule)
        if not rule.axes:
            ended.setdefault(rule.name, rule)


def _name_of_axis(key: Scalar, problems: Problems) -> bool:
    name = key.text
    if name in _RESERVED or not _AXIS.fullmatch(name):
        why = (
            "this word has a meaning of its own" if name in _RESERVED else "a name has lower-case letters, digits and _"
        )
        problems.add("bad-name", key.span, f"`{name}` cannot be the name of a mesh axis", why=why)
        return False
    return True


def _written(node: Node) -> str:
    if isinstance(node, Listing):
        return f"[{', '.join(_written(item) for item in node.items)}]"
    return (node.text or "none") if isinstance(node, Scalar) else "AXIS"
