"""Capture: the model as its author wrote it, as a graph."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from graphpar.capture import recipe, siblings, translate
from graphpar.capture.loops import fold
from graphpar.ir.graph import Graph, Node, with_outputs

BATCH = sympy.Symbol("batch", integer=True, positive=True)
SEQ = sympy.Symbol("seq", integer=True, positive=True)


@dataclass(frozen=True)
class Signature:
    """How the model is called for training: its token inputs, constants, and which output is the loss."""

    inputs: tuple[str, ...]
    constants: Mapping[str, Any]
    loss: str | None = None


@dataclass(frozen=True)
class Captured:
    """The graph of the loss, the tape of the constructor, and the values of buffers."""

    graph: Graph
    built: recipe.Built
    signature: Signature


def capture(construct: Callable[[], nn.Module], signature: Signature) -> Captured:
    """Build the model without storage and capture its training loss.

    Every input is an int64 tensor [batch, seq]; both sizes stay symbolic.
    """
    with _quiet():
        built = recipe.build(construct)
        model = built.model.train()
        _fill_buffers(model, built.tape)
        program, groups = export(model, signature)
        translation = translate.translate(program, model, _sizes(program, signature))
        nodes, new, loops = fold(translation, groups.sites)
    loss = new[_loss(program, translation, signature)]
    tensors = translate.tensors(model)
    graph = Graph(tuple(nodes), (loss,), loops, translate.modules(model), tensors)
    graph = with_outputs(graph, nodes, (loss,))
    return Captured(_first_names(graph, translate.aliases(tensors)), built, signature)


def export(model: nn.Module, signature: Signature) -> tuple[ExportedProgram, siblings.Siblings]:
    """Export with repeated blocks folded, splitting groups until every fold is proven."""
    groups = siblings.group(model)
    while True:
        try:
            with siblings.folded(model, groups):
                program = _export(model, signature)
        except siblings.NotTheSameCall as refusal:
            groups = siblings.Siblings(_alone(groups, refusal.site), open={*groups.open, refusal.site})
            continue
        finer = siblings.split(model, groups)
        if finer is None:
            return program, groups
        groups = finer


def _alone(groups: siblings.Siblings, site: int) -> list[siblings.Site]:
    """The sites with one member taken out of its group; if it led the group, the next member leads."""
    rest = [n for n, s in enumerate(groups.sites) if s.leader == groups.sites[site].leader and n != site]
    leader = groups.sites[site].leader if groups.sites[site].leader != site else min(rest, default=site)
    sites = list(groups.sites)
    for n in rest:
        sites[n] = replace(sites[n], leader=leader)
    sites[site] = replace(sites[site], leader=site)
    return sites


def _export(model: nn.Module, signature: Signature) -> ExportedProgram:
    batch, seq = _example_sizes(model)
    inputs = {name: torch.arange(batch * seq).reshape(batch, seq) % 2 + k for k, name in enumerate(signature.inputs)}
    dynamic: dict[str, Any] = {name: {0: Dim.AUTO, 1: Dim.AUTO} for name in inputs}
    dynamic |= dict.fromkeys(signature.constants)
    return torch.export.export(
        model, (), {**inputs, **signature.constants}, dynamic_shapes=dynamic, strict=False, prefer_deferred_runtime_asserts_over_guards=True
    )


def _example_sizes(model: nn.Module) -> tuple[int, int]:
    """Two sizes that no dimension of the model has, so that nothing can be taken for batch or seq by its size."""
    taken = {int(s) for p in (*model.parameters(), *model.buffers()) for s in p.shape}
    free = [n for n in (3, 5, 7, 11, 13, 17, 19, 23, 29) if n not in taken]
    return free[0], free[2]


def _sizes(program: ExportedProgram, signature: Signature) -> dict[sympy.Expr, sympy.Expr]:
    found: dict[sympy.Expr, sympy.Expr] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in signature.inputs:
            for size, symbol in zip(node.meta["val"].shape, (BATCH, SEQ), strict=True):
                if not isinstance(size, torch.SymInt):
                    raise Specialised(node.name, str(symbol), int(size))
                found[size.node.expr] = symbol
    return found


class Specialised(Exception):
    """The export fixed a size that has to stay free."""

    def __init__(self, name: str, dim: str, size: int) -> None:
        super().__init__(f"the model only works for {dim} = {size} of `{name}`")
        self.name, self.dim, self.size = name, dim, size


class NoLoss(Exception):
    """No output of the model is a scalar loss."""


def _loss(program: ExportedProgram, translation: translate.Translation, signature: Signature) -> Node:
    outputs = translate.flatten(translation.outputs)
    scalars = [o for o in outputs if o.shape == () and o.dtype.startswith("float")]
    if not scalars:
        raise NoLoss([f"{o.dtype}{list(o.shape)}" for o in outputs])
    return scalars[0]


def _fill_buffers(model: nn.Module, tape: Mapping[str, Any]) -> None:
    """Give every buffer its value: later steps read masks and tables."""
    names = [name for name, _ in model.named_buffers()]
    for name, value in recipe.replay(tape, names).items():
        owner, _, key = name.rpartition(".")
        module = model.get_submodule(owner)
        module._buffers[key] = value


def _first_names(graph: Graph, first: Mapping[str, str]) -> Graph:
    members = {alias: name for alias, name in first.items()}

    def rename(name: str) -> str:
        return members.get(name, name)

    from graphpar.ir.graph import rebuild

    def rule(node: Node) -> Node | None:
        if node.op in ("parameter", "buffer") and rename(node.attrs["name"]) != node.attrs["name"]:
            return replace(node, attrs={"name": rename(node.attrs["name"])})
        return None

    return _merge_tensors(rebuild(graph, rule))


def _merge_tensors(graph: Graph) -> Graph:
    """One node per parameter or buffer."""
    from graphpar.ir.graph import rebuild

    kept: dict[str, Node] = {}

    def rule(node: Node) -> Node | None:
        return kept.setdefault(node.attrs["name"], node) if node.op in ("parameter", "buffer") else None

    return rebuild(graph, rule)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings and log lines of the export machinery."""
    level = logging.getLogger("torch").level
    logging.getLogger("torch").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.getLogger("torch").setLevel(level)


def inputs_of(graph: Graph) -> Sequence[str]:
    """The names of the inputs that the loss depends on."""
    return [n.attrs["name"] for n in graph.inputs]
