"""Calls of repeated blocks become loops.

The members of a module list that run one after another, each fed by the one before, become one loop; every body that
occurs is kept once. Calls that do not chain like that are written out again, one body per call.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphpar.capture.siblings import Site
from graphpar.capture.translate import BlockCall, Translation
from graphpar.ir.graph import Arg, Loop, Node, Origin

Chain: TypeAlias = "tuple[int | None, ...]"


@dataclass(frozen=True)
class Run:
    """All calls of one module list, in order, and how each feeds the next: per input, the output it comes from."""

    path: str
    sites: tuple[int, ...]
    calls: tuple[BlockCall, ...]
    chain: Chain | None


def fold(translation: Translation, sites: Sequence[Site]) -> tuple[list[Node], dict[Node, Node], dict[str, Loop]]:
    """The nodes with loops in place of calls, what became of each old node, and the loops."""
    runs = _runs(translation, sites)
    folder = _Folder(translation, sites, {s: run for run in runs for s in run.sites})
    folder.walk()
    return folder.nodes, folder.new, folder.loops


def _runs(translation: Translation, sites: Sequence[Site]) -> list[Run]:
    by_site = {call.site: call for call in translation.calls}
    paths: dict[str, list[int]] = {}
    for number, site in enumerate(sites):
        paths.setdefault(site.path, []).append(number)
    runs: list[Run] = []
    for path, numbers in paths.items():
        called = all(n in by_site for n in numbers) and len(translation.calls) == len(by_site)
        calls = tuple(by_site[n] for n in numbers if n in by_site)
        leaders = [sites[n].leader for n in numbers]
        chain = _chain(calls, translation, leaders) if called else None
        runs.append(Run(path, tuple(numbers), calls, chain))
    return runs


def _chain(calls: Sequence[BlockCall], translation: Translation, leaders: Sequence[int]) -> Chain | None:
    """How each call feeds the next, if all do it in the same way and nobody else reads what passes between them."""
    order = {node: i for i, node in enumerate(translation.nodes)}
    if any(order[a.outputs[0]] > order[b.outputs[0]] for a, b in itertools.pairwise(calls)):
        return None
    chains = {_step(a, b) for a, b in itertools.pairwise(calls)}
    if len(chains) != 1:
        return None
    (chain,) = chains
    if any(len(c.outputs) != len(set(chain) - {None}) for c in calls) or not _steady(calls, chain, leaders):
        return None
    return chain if _private(calls, translation) else None


def _step(before: BlockCall, after: BlockCall) -> Chain:
    return tuple(before.outputs.index(value) if value in before.outputs else None for value in after.inputs)


def _steady(calls: Sequence[BlockCall], chain: Chain, leaders: Sequence[int]) -> bool:
    """Whether what is not passed on is the same for all calls of one body."""
    kept: dict[int, list[Node]] = {}
    for call, leader in zip(calls, leaders, strict=True):
        values = [v for v, source in zip(call.inputs, chain, strict=True) if source is None]
        if kept.setdefault(leader, values) != values:
            return False
    return True


def _private(calls: Sequence[BlockCall], translation: Translation) -> bool:
    passing = {o: k for k, call in enumerate(calls[:-1]) for o in call.outputs}
    allowed = {node: k for k, call in enumerate(calls) for node in (*call.body_inputs, *call.outputs)}
    for node in translation.nodes:
        for operand in node.operands:
            if operand in passing and allowed.get(node) != passing[operand] + 1:
                return False
    return not any(o in passing for o in translation.outputs if isinstance(o, Node))


class _Folder:
    def __init__(self, translation: Translation, sites: Sequence[Site], runs: Mapping[int, Run]) -> None:
        self.translation = translation
        self.sites = sites
        self.calls = {call.site: call for call in translation.calls}
        self.new: dict[Node, Node] = {}
        self.nodes: list[Node] = []
        self.loops: dict[str, Loop] = {}
        self.entered: dict[tuple[str, int], Node] = {}
        self.bodies = {n: self._body(call) for n, call in self.calls.items() if call.body_inputs or call.body_outputs}
        self.runs = {
            site: replace(run, chain=None) if self._is_read_outside(run) else run for site, run in runs.items()
        }
        self.rename: dict[Node, Callable[[str], str]] = {}

    def walk(self) -> None:
        for run in dict.fromkeys(self.runs.values()):
            if run.chain is not None and run.calls:
                kinds = {leader: k for k, leader in enumerate(dict.fromkeys(self.sites[s].leader for s in run.sites))}
                self.loops[run.path] = Loop(run.path, tuple(kinds[self.sites[s].leader] for s in run.sites))
        self._plan_names()
        for node in self.translation.nodes:
            match node.op:
                case "enter":
                    self._enter(node)
                case "leave":
                    self._leave(node)
                case _:
                    self._copy(node)

    def _plan_names(self) -> None:
        for site, body in self.bodies.items():
            run = self.runs[site]
            if run.path in self.loops:
                old = f"{run.path}.{self.sites[site].index}"
                loop = self.loops[run.path]
                new = f"{run.path}.{loop.part(loop.kinds[self.sites[site].index])}"
                for node in body:
                    self.rename[node] = _renamer(old, new)

    def _is_read_outside(self, run: Run) -> bool:
        """Whether something besides the blocks reads a parameter of one of them: in a loop none has a name."""
        inside = {node for site in run.sites for node in self.bodies.get(site, ())}
        own = {n for n in self.translation.nodes if str(n.attrs.get("name", "")).startswith(f"{run.path}.")}
        return any(not own.isdisjoint(node.operands) for node in self.translation.nodes if node not in inside)

    def _body(self, call: BlockCall) -> list[Node]:
        inside: dict[Node, None] = {}
        stop = set(call.body_inputs)
        stack = list(call.body_outputs)
        while stack:
            node = stack.pop()
            if node not in inside and node not in stop and node.op not in ("input", "enter", "leave"):
                inside[node] = None
                stack.extend(node.operands)
        return list(inside)

    def _copy(self, node: Node) -> None:
        self._add(node, _mapped(node, self.new, self.rename.get(node)))

    def _add(self, old: Node, new: Node) -> Node:
        self.new[old] = new
        self.nodes.append(new)
        return new

    def _enter(self, node: Node) -> None:
        site = node.attrs["site"]
        run = self.runs[site]
        slot = self.calls[site].body_inputs.index(node)
        if not run.chain or run.chain[slot] is None:
            self.new[node] = self.new[node.operands[0]]
            return
        key = (run.path, slot)
        if key not in self.entered:
            start = self.new[run.calls[0].inputs[slot]]
            made = Node(
                "loop_enter", (start,), {"loop": run.path, "slot": slot}, node.shape, node.dtype, _above(node, run.path)
            )
            self.nodes.append(made)
            self.entered[key] = made
        self.new[node] = self.entered[key]

    def _leave(self, node: Node) -> None:
        site, index = node.attrs["site"], node.attrs["index"]
        run = self.runs[site]
        if run.chain is None:
            if index == 0:
                self._write_out(site)
            return
        if site != run.sites[-1]:
            return
        slot = run.chain.index(index)
        leaders = tuple(dict.fromkeys(self.sites[s].leader for s in run.sites))
        results = tuple(self.new[self.calls[k].body_outputs[index]] for k in leaders)
        attrs = {"loop": run.path, "slot": slot}
        self._add(node, Node("loop_leave", results, attrs, node.shape, node.dtype, _above(node, run.path)))

    def _write_out(self, site: int) -> None:
        leader = self.sites[site].leader
        call, model = self.calls[site], self.calls[leader]
        if site == leader:
            for out, value in zip(call.outputs, call.body_outputs, strict=True):
                self.new[out] = self.new[value]
            return
        path = self.sites[site].path
        renamer = _renamer(f"{path}.{self.sites[leader].index}", f"{path}.{self.sites[site].index}")
        local = {b: self.new[i] for b, i in zip(model.body_inputs, call.inputs, strict=True)}
        order = {node: i for i, node in enumerate(self.translation.nodes)}
        own = set(self.bodies[leader])
        for node in sorted(own, key=order.__getitem__):
            copy = _mapped(node, {**self.new, **local}, renamer)
            local[node] = copy
            self.nodes.append(copy)
        for out, value in zip(call.outputs, model.body_outputs, strict=True):
            self.new[out] = local[value]


def _mapped(node: Node, new: Mapping[Node, Node], rename: Callable[[str], str] | None) -> Node:
    args: tuple[Arg, ...] = tuple(new[a] if isinstance(a, Node) else a for a in node.args)
    if rename is None:
        return replace(node, args=args)
    attrs = {**node.attrs, "name": rename(node.attrs["name"])} if "name" in node.attrs else node.attrs
    return replace(node, args=args, attrs=attrs, origin=replace(node.origin, module=rename(node.origin.module)))


def _renamer(old: str, new: str) -> Callable[[str], str]:
    def rename(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(f"{old}.") else path

    return rename


def _above(node: Node, path: str) -> Origin:
    return replace(node.origin, module=path.rpartition(".")[0], names=())
