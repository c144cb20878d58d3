"""Ops that no rule describes, and rules of a spec that do not fit their op."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Mapping, Sequence

from graphpar.errors import Diagnostic, Note, Span
from graphpar.ir.graph import Graph, Node, Size
from graphpar.ops.rules import short

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def without_rule(nodes: Iterable[Node]) -> list[Diagnostic]:
    """One diagnostic per op, at its first place, for nodes that no rule describes."""
    by_op: dict[str, list[Node]] = {}
    for node in nodes:
        by_op.setdefault(node.op, []).append(node)
    return [_without_rule(op, found) for op, found in by_op.items()]


def misfits(graph: Graph, rules: Mapping[str, str], places: Mapping[str, Span]) -> list[Diagnostic]:
    """Rules of the spec, in the notation of the table, that do not have the tensors of the op they are for."""
    found: dict[str, Diagnostic] = {}
    for node in graph.nodes:
        name = node.op if node.op in rules else short(node.op)
        why = _misfit(node, rules[name]) if name in rules else ""
        if why:
            every = [n for n in graph.nodes if n.op == node.op]
            found.setdefault(name, _misfitting(node, name, why, places.get(name), safe_rule(every)))
    return list(found.values())


def place_of(node: Node) -> Span | None:
    """Where the op is written: its name on the line, or else the whole line."""
    file, line = node.origin.file, node.origin.line
    if not file:
        return None
    text = linecache.getline(file, line).rstrip()
    words = node.op.split(".")[1].split("_") if "." in node.op else [node.op]
    for start in range(len(words)):  # `special_airy_ai` is written torch.special.airy_ai
        match = re.search(rf"\b{re.escape('_'.join(words[start:]))}\b", text) if words[start:] else None
        if match:
            return Span(file, line, match.start() + 1, len(match[0]))
    indent = len(text) - len(text.lstrip())
    return Span(file, line, indent + 1, max(len(text) - indent, 1))


def safe_rule(nodes: Sequence[Node]) -> str:
    """The rule under which every dimension is whole, whatever the op does; `nodes` are calls, and parts, of one op."""
    letters: dict[str, str] = {}
    first = nodes[0]
    terms = [_term(node, letters) for node in first.operands]
    parts = {node.attrs.get("part", 0): node for node in nodes if node.operands == first.operands}
    results = [_result(parts.get(i, first), letters) for i in range(max(parts) + 1)]
    left = ", ".join(" ".join(x if x == "1" else f"{x}!" for x in term) for term in terms)
    return f"{left} -> {', '.join(results if len(set(results)) > 1 else results[:1])}"


def _term(node: Node, letters: dict[str, str]) -> list[str]:
    """A letter for each dimension; the same for what has the same name."""
    found: list[str] = []
    for i, size in enumerate(node.shape):
        name = str(node.axes[i]) if node.axes else str(size)
        name = f"{name} twice" if letters.get(name) in found else name
        found.append("1" if size == 1 else letters.setdefault(name, _LETTERS[len(letters)]))
    return found


def _result(node: Node, letters: Mapping[str, str]) -> str:
    """Dimensions of the result that are the operands', in their order, and `_` for those that are new."""
    sizes = [(size, key) for operand in node.operands[:1] for size, key in _named(operand, letters)]
    found: list[str] = []
    for size in node.shape:
        at = next((i for i, (other, _) in enumerate(sizes) if other == size), None)
        if size == 1 or at is None:
            found.append("1" if size == 1 else "_")
            continue
        found.append(sizes[at][1])
        sizes = sizes[at + 1 :]
    return " ".join(found)


def _named(node: Node, letters: Mapping[str, str]) -> list[tuple[Size, str]]:
    return [pair for pair in zip(node.shape, _term(node, dict(letters)), strict=True) if pair[1] != "1"]


def _without_rule(op: str, nodes: Sequence[Node]) -> Diagnostic:
    by_line: dict[tuple[str, int], Node] = {}
    for node in nodes:
        by_line.setdefault((node.origin.file, node.origin.line), node)
    first, *others = by_line.values()
    shapes = ", ".join("[" + " ".join(map(str, a.axes or a.shape)) + "]" for a in first.operands)
    whole = "   # every dimension whole; without its `!`, one may be cut"
    return Diagnostic(
        "no-op-rule",
        place_of(first),
        f"no rule says what `{op}` does to named dimensions",
        why=(
            f"it reads {shapes} in {first.origin.module or 'the model'}",
            "without a rule nothing can be said about a cut operand",
        ),
        notes=tuple(Note(f"and in {n.origin.module or 'the model'}", place_of(n)) for n in others),
        fix=f'ops:\n  {op}: "{safe_rule(nodes)}"{whole}',
        kind="model",
    )


def _misfit(node: Node, rule: str) -> str:
    left, _, right = rule.partition("->")
    terms, results = left.split(","), right.split(",")
    if len(terms) != len(node.args):
        return f"the rule reads {len(terms)} tensors, and the op reads {len(node.args)}"
    wrong = [(t, a) for t, a in zip(terms, node.operands, strict=False) if not _fits(t, a)]
    if wrong:
        return f"`{wrong[0][0].strip()}` is not of {len(wrong[0][1].shape)} dimensions: {list(wrong[0][1].shape)}"
    part = node.attrs.get("part", 0)
    if len(results) > 1 and (part >= len(results) or "part" not in node.attrs):
        return f"the rule makes {len(results)} tensors, and the op makes {'more' if part else 'one'}"
    result = results[part if len(results) > 1 else 0]
    return "" if _fits(result, node) else f"`{result.strip()}` is not of {node.rank} dimensions: {list(node.shape)}"


def _fits(term: str, node: Node) -> bool:
    words = term.split()
    if words == ["?"]:
        return True
    return len(words) - 1 <= node.rank if "..." in words or "...!" in words else len(words) == node.rank


def _misfitting(node: Node, name: str, why: str, place: Span | None, rule: str) -> Diagnostic:
    return Diagnostic(
        "op-rule-misfit",
        place,
        f"the rule of `{name}` does not fit the op",
        why=(why, "a rule has a term for each tensor that the op reads, and one for each that it makes or one for all"),
        notes=(Note(f"`{name}` is called here", place_of(node)),),
        fix=f'{name}: "{rule}"',
    )
