"""Stages that a spec lists, against the modules of one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from graphpar.errors import Diagnostic, GraphparError, Note, any_of, listing, raise_if_any
from graphpar.ir.graph import Graph, Node, ancestors, plain
from graphpar.language.check_pipeline import span_of
from graphpar.language.schema import Pipeline
from graphpar.language.selectors import Selector, matches, selects
from graphpar.language.unmatched import ModelNames, explain_path, out_of_range
from graphpar.pipeline.costs import layers_of


def list_of_layers(pipeline: Pipeline, graph: Graph) -> str:
    """The path of the list that the stages share out. Raises GraphparError if there is none, or more than one."""
    lists, aliases = graph.lists(), graph.aliases()
    selector = pipeline.layers
    found = [path for path in lists if selects(selector, path, lists=lists, aliases=aliases)]
    usual = aliases.get(selector.text)
    if usual in found:
        return usual
    if len(found) == 1:
        return found[0]
    raise GraphparError(_no_list(pipeline, found, graph))


def _no_list(pipeline: Pipeline, found: Sequence[str], graph: Graph) -> Diagnostic:
    selector, names = pipeline.layers, model_names(graph)
    span = span_of(pipeline, "layers")
    lists = [f"/{path}" for path in graph.lists()]
    if not found and not names.takes(selector):
        told = explain_path(selector, names.paths, names)
        known = (*told.notes, Note(listing(lists, "lists of the model"))) if lists else told.notes
        return replace(told, notes=known, fix=told.fix or (f"layers: {lists[0]}" if len(lists) == 1 else None))
    message = f"`{selector}` is several lists of modules" if found else f"`{selector}` is no list of modules"
    why = "the stages of a pipeline share out the members of one list of layers"
    notes = (Note(listing([p for p in lists if not found or p[1:] in found], "lists of the model")),)
    fix = f"layers: /{found[0]}" if found else f"layers: {lists[0]}" if lists else None
    return Diagnostic("no-layers", span, message, why=(why,), notes=notes, fix=fix)


def listed(
    pipeline: Pipeline, path: str, graph: Graph, stages: int, ranks: int
) -> tuple[tuple[range, ...], dict[str, int]]:
    """The layers of each stage of the spec's list, and the stages of the other modules in it.

    Raises GraphparError with every selector that fits no module, and every layer that is not in just one stage.
    """
    assert pipeline.stages is not None
    reader = _Reader(pipeline, path, graph)
    if len(pipeline.stages) != stages:
        reader.problems.append(_wrong_count(pipeline, stages, ranks))
    for stage, selectors in enumerate(pipeline.stages):
        for selector in selectors:
            reader.read(stage, selector)
    reader.check()
    raise_if_any(reader.problems)
    return reader.pieces(), reader.modules


def _wrong_count(pipeline: Pipeline, stages: int, ranks: int) -> Diagnostic:
    """Of a schedule from a file; a named one is checked with the language."""
    return Diagnostic(
        "stage-count",
        span_of(pipeline, "stages"),
        f"the number of stages listed is {len(pipeline.stages or ())}, and {pipeline.schedule} runs {stages}",
        why=(f"{pipeline.schedule} has actions of stages 0 to {stages - 1} on {ranks} ranks",),
        fix=f"list {stages} stages",
    )


class _Reader:
    """Reads selectors one after another, in the order of the stages."""

    def __init__(self, pipeline: Pipeline, path: str, graph: Graph) -> None:
        self.pipeline = pipeline
        self.path = path
        self.names = model_names(graph)
        self.count = self.names.lists[path]
        self.problems: list[Diagnostic] = []
        self.takers: dict[int, list[tuple[int, Selector]]] = {i: [] for i in range(self.count)}
        self.modules: dict[str, int] = {}
        self.named: dict[str, Selector] = {}

    def read(self, stage: int, selector: Selector) -> None:
        """Note the layers and modules that a stage takes with one selector."""
        if selector.kind != "module":
            self.problems.append(_no_module(selector))
            return
        names = self.names
        members = [i for i in range(self.count) if self._takes(selector, f"{self.path}.{i}")]
        for index in members:
            self.takers[index].append((stage, selector))
        if members and (beyond := out_of_range(selector, names)):
            self.problems.append(beyond)
        found = [p for p in names.paths if selects(selector, p, lists=names.lists, aliases=names.aliases)]
        beside = [p for p in found if not f"{p}.".startswith(f"{self.path}.") and p not in ancestors(self.path)]
        for module in beside:
            self._module(stage, selector, module)
        if not members and not beside:
            inside = next((p for p in found if p.startswith(f"{self.path}.")), None)
            self.problems.append(self._part(selector, inside) if inside else explain_path(selector, names.paths, names))

    def _takes(self, selector: Selector, member: str) -> bool:
        return matches(selector, member, lists=self.names.lists, aliases=self.names.aliases)

    def _module(self, stage: int, selector: Selector, module: str) -> None:
        if module in self.modules:
            first = self.named[module]
            message = f"`{module}` is listed twice"
            notes = (Note(f"`{first}` takes it into stage {self.modules[module]}", first.span),)
            fix = f"delete `{selector}` from stage {stage}"
            self.problems.append(Diagnostic("bad-stages", selector.span, message, notes=notes, fix=fix))
        else:
            self.modules[module] = stage
            self.named[module] = selector

    def _part(self, selector: Selector, inside: str) -> Diagnostic:
        index = inside.removeprefix(f"{self.path}.").split(".")[0]
        message = f"`{selector}` is a part of a layer, and a layer is on one stage as a whole"
        why = f"`{inside}` lies in `{self.path}.{index}`"
        return Diagnostic("bad-stages", selector.span, message, why=(why,), fix=self._spelled(int(index)))

    def check(self) -> None:
        """Note layers that no stage takes, or more than one, or an earlier stage than the layer before."""
        missing = [i for i, taken in self.takers.items() if not taken]
        if missing:
            self.problems.append(self._left_out(missing))
        doubly: dict[tuple[Selector, Selector], list[int]] = {}
        for index, taken in self.takers.items():
            for _, later in taken[1:]:
                doubly.setdefault((taken[0][1], later), []).append(index)
        self.problems += [self._twice(first, later, layers) for (first, later), layers in doubly.items()]
        found = [(index, *taken[0]) for index, taken in self.takers.items() if taken]
        self.problems += [self._back(*pair) for pair in pairwise(found) if pair[1][1] < pair[0][1]]

    def _left_out(self, missing: Sequence[int]) -> Diagnostic:
        own = self._by_stage()
        counts = ", ".join(f"stage {s} has {len(layers)}" for s, layers in enumerate(own))
        changed: dict[int, list[int]] = {}
        for index in missing:  # to the stage of the layer before
            stage = next((s for i in range(index, -1, -1) for s, layers in enumerate(own) if i in layers), 0)
            changed.setdefault(stage, own[stage]).append(index)
        return Diagnostic(
            "bad-stages",
            span_of(self.pipeline, "stages"),
            f"no stage has {_all_of(self._runs(missing))}",
            why=(f"`{self.path}` has {self.count} layers, and {counts}",),
            fix="\n".join(self._line(stage, layers) for stage, layers in sorted(changed.items())),
        )

    def _line(self, stage: int, layers: Sequence[int]) -> str:
        """What a spec says of a stage that has other layers than it listed."""
        assert self.pipeline.stages is not None
        selectors = self.pipeline.stages[stage]
        taken = {selector for takers in self.takers.values() for _, selector in takers}
        at = next((n for n, selector in enumerate(selectors) if selector in taken), len(selectors))
        words = [*(s.text for s in selectors[:at]), *self._runs(sorted(layers))]
        return f"- {', '.join([*words, *(s.text for s in selectors[at:] if s not in taken)])}   # stage {stage}"

    def _twice(self, first: Selector, later: Selector, layers: Sequence[int]) -> Diagnostic:
        message = f"`{later}` takes {_all_of(self._runs(layers))}, which another selector has taken"
        rest = [i for i, taken in self.takers.items() if i not in layers and any(s is later for _, s in taken)]
        fix = ", ".join(self._runs(rest)) or f"delete `{later}`"
        return Diagnostic(
            "bad-stages", later.span, message,
            notes=(Note(f"`{first}` comes first", first.span),), fix=fix,
        )  # fmt: skip

    def _back(self, before: tuple[int, int, Selector], layer: tuple[int, int, Selector]) -> Diagnostic:
        earlier, there, other = before
        index, here, selector = layer
        return Diagnostic(
            "bad-stages",
            selector.span,
            f"layer {index} is on stage {here}, and layer {earlier} before it on stage {there}",
            why=("layers run in their order, and a stage sends to the next one only",),
            notes=(Note(f"`{other}` takes layer {earlier}", other.span),),
            fix="\n".join(self._line(s, piece) for s, piece in enumerate(self.pieces())),
        )

    def _runs(self, layers: Sequence[int]) -> list[str]:
        return [self._spelled(piece.start, piece.stop) for piece in _runs(layers)]

    def _spelled(self, start: int, stop: int | None = None) -> str:
        word = self.pipeline.layers.text
        one = stop is None or stop == start + 1
        return f"{word}[{start}]" if one else f"{word}[{start}:{stop}]"

    def _by_stage(self) -> list[list[int]]:
        stages = range(len(self.pipeline.stages or ()))
        return [[i for i, taken in self.takers.items() if any(s == t for t, _ in taken)] for s in stages]

    def pieces(self) -> tuple[range, ...]:
        """The layers of each stage; a stage without any has an empty range where they would be."""
        found: list[range] = []
        at = 0
        for own in self._by_stage():
            found.append(range(at, at + len(own)))
            at += len(own)
        return tuple(found)


def out_of_order(
    pipeline: Pipeline, graph: Graph, path: str, layers: Sequence[range], modules: Mapping[str, int]
) -> tuple[Diagnostic, ...]:
    """Modules on an earlier stage than what they read: at most one diagnostic for each module."""
    home = {i: stage for stage, piece in enumerate(layers) for i in piece}
    latest: dict[Node, tuple[int, str]] = {}  # the last stage that a value depends on, and the module that it is for
    looping: set[Node] = set()  # a loop runs its members in their order, whatever its body reads of itself
    told: dict[str, Diagnostic] = {}
    for node in graph.nodes:
        reads = max((latest[a] for a in node.operands if a not in looping), default=(-1, ""))
        inside = [i for i in layers_of(graph, node, path) if i is not None]
        named = next((m for m in reversed(ancestors(plain(node.origin.module))) if m in modules), None)
        if inside:
            own = (home[min(inside)], f"{path}.{min(inside)}")
            latest[node] = (home[max(inside)], f"{path}.{max(inside)}")
            looping |= {node} if path in graph.loops and node.op != "loop_leave" else set()
        elif named is not None:
            own = latest[node] = (modules[named], named)
        else:
            own = latest[node] = reads
        if reads[0] > own[0]:
            among = all(name not in modules for _, name in (own, reads))
            problem = (
                _not_in_order(pipeline, path, own, reads) if among else _reads_later(pipeline, own, reads, modules)
            )
            told.setdefault(path if among else own[1], problem)
    return tuple(told.values())


def _not_in_order(pipeline: Pipeline, path: str, own: tuple[int, str], reads: tuple[int, str]) -> Diagnostic:
    return Diagnostic(
        "no-layers",
        span_of(pipeline, "layers"),
        f"the model does not run `{path}` in the order of the list",
        why=(
            f"`{own[1]}` on stage {own[0]} reads what `{reads[1]}` on stage {reads[0]} makes",
            "a stage receives from the one before it, never from a later one",
        ),
    )


def _reads_later(
    pipeline: Pipeline, own: tuple[int, str], reads: tuple[int, str], modules: Mapping[str, int]
) -> Diagnostic:
    listed_own = own[1] in modules
    selectors = [s for stage in pipeline.stages or () for s in stage]
    span = next(
        (s.span for s in selectors if selects(s, (own if listed_own else reads)[1])), span_of(pipeline, "stages")
    )
    return Diagnostic(
        "bad-stages",
        span,
        f"`{own[1]}` is on stage {own[0]}, and reads what `{reads[1]}` makes on stage {reads[0]}",
        why=("a stage receives from the one before it, never from a later one",),
        fix=f"list `{own[1]}` with stage {reads[0]}" if listed_own else f"list `{reads[1]}` with stage {own[0]}",
    )


def model_names(graph: Graph) -> ModelNames:
    """What selectors of stages can refer to."""
    return ModelNames([p for p in graph.modules if p], lists=graph.lists(), aliases=graph.aliases())


def _no_module(selector: Selector) -> Diagnostic:
    message = f"`{selector}` is no module: a stage consists of modules"
    return Diagnostic("bad-stages", selector.span, message, fix="layers[0:4], ln_f")


def _all_of(words: Sequence[str]) -> str:
    return any_of(words).replace(" or ", " and ")


def _runs(numbers: Sequence[int]) -> list[range]:
    """Numbers in increasing order as ranges."""
    found: list[range] = []
    for n in numbers:
        if found and found[-1].stop == n:
            found[-1] = range(found[-1].start, n + 1)
        else:
            found.append(range(n, n + 1))
    return found
