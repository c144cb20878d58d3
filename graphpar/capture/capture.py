"""Capture: the model as its author wrote it, as a graph."""

# Buffers get their values, and stack traces stay whole: both are torch's own insides.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import sympy
import torch
import torch.utils._pytree as pytree
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.proxy import TracerBase

from graphpar.capture import recipe, siblings, translate
from graphpar.capture.escapes import escaping
from graphpar.capture.loops import fold
from graphpar.capture.lost import no_own_gradients, require_dropout_to_end, require_no_hooks
from graphpar.capture.share import share
from graphpar.capture.untouched import untouched
from graphpar.ir.graph import Graph, Node, rebuild, with_outputs

BATCH = sympy.Symbol("batch", integer=True, positive=True)
SEQ = sympy.Symbol("seq", integer=True, positive=True)


@dataclass(frozen=True)
class Signature:
    """How the model is called for training: its inputs, constants, and which output is the loss.

    Every input is int64[batch, seq], but int64[batch] if it is one of `per_row`: labels of whole rows.
    """

    inputs: tuple[str, ...]
    constants: Mapping[str, Any]
    loss: str | None = None
    per_row: tuple[str, ...] = ()

    def sized(self, batch: int, seq: int) -> dict[str, tuple[int, ...]]:
        """The shape of every input of so many rows and tokens."""
        return {name: (batch,) if name in self.per_row else (batch, seq) for name in self.inputs}


@dataclass(frozen=True)
class Captured:
    """The graph of the loss, the tape of the constructor, and the values of buffers."""

    graph: Graph
    built: recipe.Built
    signature: Signature
    assumptions: tuple[translate.Assumption, ...] = ()


def capture(construct: Callable[[], nn.Module], signature: Signature) -> Captured:
    """Build the model without storage and capture its training loss.

    Both sizes of the inputs stay symbolic.
    """
    with _quiet():
        built = recipe.build(construct)
        model = built.model.train()
        _fill_buffers(model, built.tape)
        require_no_hooks(model)
        program, groups = export(model, signature)
        sizes = _sizes(program, signature)
        translation = share(translate.translate(program, model, sizes), groups.sites)
        nodes, new, loops = fold(translation, groups.sites)
        if any(node.op == "dropout" or node.attrs.get("dropout") for node in nodes):
            require_dropout_to_end(model, signature.sized(2, 16), signature.constants)
    loss = new[_loss(program, translation, signature)]
    tensors = translate.tensors(model)
    graph = Graph(tuple(nodes), (loss,), loops, translate.modules(model), tensors)
    graph = _say_patterns(with_outputs(graph, nodes, (loss,)), model)
    graph = _first_names(graph, translate.aliases(tensors))
    return Captured(graph, built, signature, (*translation.assumptions, *_bounds(program, sizes)))


def export(model: nn.Module, signature: Signature) -> tuple[ExportedProgram, siblings.Siblings]:
    """Export with repeated blocks folded, splitting groups until every fold is proven."""
    apart: set[str] = set()
    groups = siblings.group(model)
    hollow = True
    while True:
        try:
            with untouched(model), siblings.folded(model, groups, hollow=hollow):
                program = _export(model, signature)
        except siblings.NotTheSameCall as refusal:
            groups = siblings.Siblings(_alone(groups, refusal.site), open={*groups.open, refusal.site})
            continue
        except siblings.CalledTwice as refusal:
            apart.add(refusal.path)
            groups = siblings.group(model, apart)
            continue
        except (AttributeError, KeyError):
            if not hollow and not groups.sites:
                raise
            if not hollow:  # it reads what blocks set while they run
                apart.update(site.path for site in groups.sites)
                groups = siblings.group(model, apart)
            hollow = False  # the model reaches into blocks from outside: they have to hold what they hold
            continue
        if escaped := escaping(program):
            apart.update(groups.sites[site].path for site in escaped)
            groups = siblings.group(model, apart)
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
    shapes = signature.sized(*_example_sizes(model))
    inputs = {name: torch.arange(prod(s)).reshape(s) % 2 + k for k, (name, s) in enumerate(shapes.items())}
    dynamic: dict[str, Any] = {name: dict.fromkeys(range(len(shape)), Dim.AUTO) for name, shape in shapes.items()}
    dynamic |= dict.fromkeys(signature.constants)
    with _whole_traces(), _no_numbers(), no_own_gradients():
        return torch.export.export(
            model,
            (),
            {**inputs, **signature.constants},
            dynamic_shapes=dynamic,
            strict=False,
            prefer_deferred_runtime_asserts_over_guards=True,
        )


@contextmanager
def _whole_traces() -> Iterator[None]:
    """Keep every frame of a value's stack trace: torch keeps those of `forward` only, and a loss in a function of its
    own would be reported at the line that calls it."""
    original = TracerBase._filter_traceback_frames
    setattr(TracerBase, "_filter_traceback_frames", lambda self, trace: trace)  # noqa: B010
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = original


@contextmanager
def _no_numbers() -> Iterator[None]:
    """Refuse `.item()` where it stands: torch would carry the number along, and no rank could make it from its part."""
    original = ShapeEnv.allow_scalar_outputs
    setattr(ShapeEnv, "allow_scalar_outputs", property(lambda self: False))  # noqa: B010
    try:
        yield
    finally:
        setattr(ShapeEnv, "allow_scalar_outputs", original)  # noqa: B010


def _example_sizes(model: nn.Module) -> tuple[int, int]:
    """Two sizes that no dimension of the model has, so that nothing can be taken for batch or seq by its size."""
    taken = {int(s) for p in (*model.parameters(), *model.buffers()) for s in p.shape}
    free = [n for n in (3, 5, 7, 11, 13, 17, 19, 23, 29) if n not in taken]
    return free[0], free[2]


def _sizes(program: ExportedProgram, signature: Signature) -> dict[sympy.Expr, sympy.Expr]:
    found: dict[sympy.Expr, sympy.Expr] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in signature.inputs:
            for size, symbol in zip(node.meta["val"].shape, (BATCH, SEQ), strict=False):
                if not isinstance(size, torch.SymInt):
                    raise Specialised(node.name, str(symbol), int(size))
                known = program.range_constraints.get(size.node.expr)
                if known is not None and known.lower == known.upper:
                    raise Specialised(node.name, str(symbol), int(known.lower))
                found[size.node.expr] = symbol
    return found


def _bounds(program: ExportedProgram, sizes: Mapping[sympy.Expr, sympy.Expr]) -> list[translate.Assumption]:
    """The bounds that the export found for batch and seq, beyond being at least 2."""
    found: list[translate.Assumption] = []
    for symbol, known in program.range_constraints.items():
        size = sizes.get(symbol)
        if size is None:
            continue
        if isinstance(known.upper, sympy.Integer) and int(known.upper) < 1 << 30:
            found.append(translate.Assumption(sympy.Le(size, int(known.upper)), "", 0))
        if isinstance(known.lower, sympy.Integer) and int(known.lower) > 2:
            found.append(translate.Assumption(sympy.Ge(size, int(known.lower)), "", 0))
    return list(dict.fromkeys(found))


class Specialised(Exception):
    """The export fixed a size that has to stay free."""

    def __init__(self, name: str, dim: str, size: int) -> None:
        super().__init__(f"the model only works for {dim} = {size} of `{name}`")
        self.name, self.dim, self.size = name, dim, size


class NoSuchOutput(Exception):
    """The model has no output of the name that the spec gives as the loss."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(name, list(known))
        self.name, self.known = name, tuple(known)


class NoLoss(Exception):
    """No output of the model is a scalar loss. `outputs` says what there is."""

    def __init__(self, outputs: Sequence[str]) -> None:
        super().__init__(list(outputs))
        self.outputs = tuple(outputs)


def _loss(program: ExportedProgram, translation: translate.Translation, signature: Signature) -> Node:
    outputs = translate.flatten(translation.outputs)
    scalars = [o for o in outputs if o.shape == () and getattr(torch, o.dtype).is_floating_point]
    named = _output_names(program)
    if signature.loss is not None:
        if signature.loss not in named:
            raise NoSuchOutput(signature.loss, named)
        chosen = translation.outputs[named.index(signature.loss)]
        scalars = [o for o in scalars if o is chosen]
    if not scalars:
        raise NoLoss([f"{o.dtype}{list(o.shape)}" for o in outputs])
    return scalars[0]


def _say_patterns(graph: Graph, model: nn.Module) -> Graph:
    """Buffers that hold a triangle of ones say so: they are functions of position."""
    values = dict(model.named_buffers(remove_duplicate=False))

    def rule(node: Node) -> Node | None:
        if node.op != "buffer" or node.rank < 2:
            return None
        names = graph.members(node.attrs["name"])
        if all(_is_triangle(values[name]) for name in names):
            return replace(node, attrs={**node.attrs, "pattern": "tril"})
        return None

    return rebuild(graph, rule)


def _is_triangle(value: torch.Tensor) -> bool:
    rows, columns = value.shape[-2:]
    plain = value.reshape(-1, columns)
    same = torch.ones(rows, columns, dtype=torch.bool).tril()
    return rows == columns == plain.shape[0] and bool(torch.equal(plain, same.to(plain.dtype)))


def _output_names(program: ExportedProgram) -> list[str]:
    """The name of each output: its key in a dict or dataclass, its index in a tuple."""
    tree = program.call_spec.out_spec
    if tree is None or tree.is_leaf():
        return ["loss"]
    dummy = pytree.tree_unflatten(list(range(tree.num_leaves)), tree)
    return [_key(path) for path, _ in pytree.tree_flatten_with_path(dummy)[0]]


def _key(path: Sequence[Any]) -> str:
    last = path[-1] if path else ""
    return str(getattr(last, "key", getattr(last, "idx", getattr(last, "name", last))))


def _fill_buffers(model: nn.Module, tape: Mapping[str, Any]) -> None:
    """Give every buffer its value: later steps read masks and tables. One buffer under two names stays one."""
    names: dict[int, list[str]] = {}
    for name, buffer in model.named_buffers(remove_duplicate=False):
        names.setdefault(id(buffer), []).append(name)
    values = recipe.replay(tape, [first for first, *_ in names.values()])
    for first, *others in names.values():
        for name in (first, *others):
            owner, _, key = name.rpartition(".")
            model.get_submodule(owner)._buffers[key] = values[first]


def _first_names(graph: Graph, first: Mapping[str, str]) -> Graph:
    """One node per parameter or buffer, under its first name."""
    kept: dict[str, Node] = {}

    def rule(node: Node) -> Node | None:
        if node.op not in ("parameter", "buffer"):
            return None
        name = first.get(node.attrs["name"], node.attrs["name"])
        return kept.setdefault(name, replace(node, attrs={**node.attrs, "name": name}))

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
