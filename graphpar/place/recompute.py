"""Which modules are run again in the backward pass, so that their values need not be kept until then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from graphpar.errors import Diagnostic, GraphparError
from graphpar.ir.graph import Graph, Node, ancestors, plain
from graphpar.ir.quadratic import is_core
from graphpar.language.schema import Recompute, Region, Spec
from graphpar.language.selectors import selects


def mark_recomputed(graph: Graph, spec: Spec) -> Graph:
    """The graph with the modules that the regions want to be run again, whole or in their attention core.

    Where several regions select a module, the first one decides. Raises GraphparError for a region that selects none.
    """
    wanted = [region for region in spec.regions if region.recompute is not None]
    if not wanted:
        return graph
    found: dict[str, Recompute] = {}
    problems: list[Diagnostic] = []
    for region in wanted:
        paths = list(_selected(graph, region))
        if not _acts(graph, paths, region.recompute):
            problems.append(_nothing(region))
        for path in paths:
            found.setdefault(path, region.recompute or False)
    if problems:
        raise GraphparError(problems)
    return replace(graph, recomputed={path: how for path, how in found.items() if how})


def _selected(graph: Graph, region: Region) -> Iterator[str]:
    """The paths of bodies that a region selects: modules themselves, and the members of a list that it selects."""
    lists, aliases = graph.lists(), graph.aliases()
    called = dict.fromkeys(plain(p) for n in graph.nodes for p in ancestors(n.origin.module))
    for path in called:
        actual = graph.members(path)[0] if path else ""
        around = actual.rpartition(".")[0] if _is_member(actual) else actual
        if path and actual not in lists and any(
            selects(s, where, lists=lists, aliases=aliases) for s in region.at for where in {actual, around}
        ):  # fmt: skip
            yield path


def _is_member(path: str) -> bool:
    return path.rpartition(".")[2].isdigit()


def _acts(graph: Graph, paths: list[str], how: Recompute | None) -> bool:
    """Whether there is something to run again."""
    if how != "selective":
        return bool(paths)
    return any(is_core(n) and _below(n, path) for n in graph.nodes for path in paths)


def _below(node: Node, path: str) -> bool:
    place = plain(node.origin.module)
    return place == path or place.startswith(f"{path}.")


def _nothing(region: Region) -> Diagnostic:
    text = ", ".join(s.text for s in region.at)
    what = "no attention" if region.recompute == "selective" else "no module"
    return Diagnostic(
        "nothing-to-recompute",
        region.span,
        f"`{text}` selects {what} that could be run again in the backward pass",
        why=("`recompute` is for modules that the forward pass calls, `selective` for the attention in them",),
        fix="at: layers",
    )
