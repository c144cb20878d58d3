"""Modules that a program calls several times: their text is one, so all calls have to be given the same."""

from __future__ import annotations

from graphpar.ir.graph import Graph, ancestors, plain


def repeated(graph: Graph) -> frozenset[str]:
    """The paths of the modules that are called more than once."""
    numbered = {p for n in graph.nodes if "@" in n.origin.module for p in ancestors(n.origin.module)}
    return frozenset(plain(path) for path in numbered if "@" in path.rpartition(".")[2])


def entered(outside: str, inside: str, modules: frozenset[str]) -> str:
    """The outermost call of one of `modules` that `inside` is in and `outside` is not; nothing if there is none."""
    within = {p for p in ancestors(outside) if plain(p) in modules}
    calls = [p for p in ancestors(inside) if plain(p) in modules and p not in within]
    return calls[0] if calls else ""
