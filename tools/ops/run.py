"""Run a placed case on simulated ranks and put together what they hold, by arithmetic of this file's own.

What a rank holds follows from the states alone: its block of every factor that is cut, index by index, and the whole
of what is not. A pending sum is the sum over the ranks, and its gradient is whole on each of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import graphpar.runtime as runtime
from graphpar.codegen.express import write
from graphpar.codegen.expression import Text
from graphpar.codegen.local import Cuts, cuts
from graphpar.ir.axes import Axis
from graphpar.ir.graph import Node, Size
from graphpar.ir.states import Invariant, Partial, Shard
from graphpar.runtime import Mesh, simulate
from tools.ops.case import SPARE
from tools.ops.program import PENDING, Program

RUNTIME = {name: getattr(runtime, name) for name in runtime.__all__}
Place = Mapping[str, int]  # a rank's coordinates
NOTHING = torch.zeros(0)  # what ranks hold that do not fit together


class Scope:
    """Every value is a variable, every mesh axis too."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = {node: f"v{i}" for i, node in enumerate(program.graph.nodes)}

    def operand(self, node: Node) -> Text:
        """The variable of a value."""
        return Text(self.names[node])

    def axis(self, names: Sequence[str]) -> str:
        """The variable of a mesh axis, or of the product of several."""
        return f"mesh[{', '.join(map(repr, names))}]"

    def local(self, node: Node) -> Cuts:
        """The cuts of a value."""
        return cuts(node, self.program.layout.mesh, self.program.layout.order)

    def size(self, size: Size, *, of: Node) -> str:
        """A size; all are known here."""
        return str(size)

    def need(self, name: str) -> str:
        """A name of the runtime."""
        return name

    def stream(self, node: Node) -> tuple[str, str]:
        """No case draws random numbers."""
        raise NotImplementedError(node.op)

    def device(self) -> str:
        """Where constants are made."""
        return "'cpu'"


@dataclass(frozen=True)
class Held:
    """What one rank has: its part of the result, and of the gradient of every leaf."""

    result: Tensor
    gradients: Mapping[str, Tensor]


def difference(program: Program, seed: int = 1) -> float:
    """By how much the ranks together differ from torch: the result and every gradient, relative to the largest."""
    case = program.whole.case
    random = torch.Generator().manual_seed(seed)
    given = case.values(seed)
    wide = {n: o.draw(random, SPARE) for o in case.operands if (n := o.name) in program.whole.pending}
    leaves = {n: (given | wide)[n].clone() for n in given}
    real = [o.name for o in case.operands if o.real]
    for word in real:
        leaves[word].requires_grad_(True)
    result = case.run({n: v.sum(0) if n in wide else v for n, v in leaves.items()})
    upstream = torch.randn(result.shape, generator=random, dtype=torch.float64)
    wants = result.requires_grad
    if wants:
        result.backward(upstream.to(result.dtype))
    fed = {f"{PENDING}{n}" if n in wide else n: v.detach() for n, v in leaves.items()}
    held = _run(program, fed, upstream if wants else None)
    out = program.graph.outputs[0]
    worst = _apart(result.detach(), _together(program, out, [h.result for h in held]))
    for node in (n for n in program.graph.nodes if wants and n.op == "parameter"):
        word = node.attrs["name"]
        whole = leaves[word.removeprefix(PENDING)].grad
        flat = torch.zeros(fed[word].shape, dtype=torch.float64) if whole is None else whole
        flat = flat.reshape([int(s) for s in node.shape])
        worst = max(worst, _apart(flat, _together(program, node, [h.gradients[word] for h in held])))
    return worst


def _apart(want: Tensor, got: Tensor) -> float:
    if want.shape != got.shape:
        return float("inf")
    if not want.numel():
        return 0.0
    if not want.is_floating_point():
        return float(not torch.equal(want, got))
    found = ((want - got).abs().max() / want.abs().max().clamp(min=1)).item()
    return found if found == found else float("inf")


def _run(program: Program, fed: Mapping[str, Tensor], upstream: Tensor | None) -> list[Held]:
    scope = Scope(program)
    lines = [
        (node, compile(write(node, scope).text, f"<{node.op}>", "eval"))
        for node in program.graph.nodes
        if node.op not in ("parameter", "input")
    ]
    (out,) = program.graph.outputs

    def rank(mesh: Mesh) -> Held:
        names: dict[str, Any] = {"mesh": mesh, "torch": torch, "F": F, **RUNTIME}
        leaves: dict[str, Tensor] = {}
        for node in program.graph.nodes:
            if node.op in ("parameter", "input"):
                word = node.attrs["name"]
                value = _count(program, fed) if word == "count" else fed[word].reshape([int(s) for s in node.shape])
                leaves[word] = names[scope.names[node]] = part(program, node, value, mesh.coordinates).clone()
                if upstream is not None:
                    leaves[word].requires_grad_(node.op == "parameter")
        for node, code in lines:
            names[scope.names[node]] = eval(code, names)
        result: Tensor = names[scope.names[out]]
        if upstream is not None:
            own = part(program, out, upstream, mesh.coordinates).to(result.dtype)
            if own.shape == result.shape and result.requires_grad:
                result.backward(own)
        zero = {w: torch.zeros_like(x) if x.grad is None else x.grad for w, x in leaves.items()}
        return Held(result.detach(), zero)

    return simulate(program.layout.mesh, rank, timeout=20)


def _count(program: Program, fed: Mapping[str, Tensor]) -> Tensor:
    """How many labels a mean counts."""
    labels = next(n for n in program.op.operands[1:] if n.attrs.get("name") != "count")
    while labels.operands:
        (labels,) = labels.operands
    return (fed[labels.attrs["name"]] != program.op.attrs["ignore"]).sum()


# ---------------------------------------------------------------- states


def part(program: Program, node: Node, value: Tensor, at: Place) -> Tensor:
    """What a rank holds of a value: its blocks of what is cut; a row past the end is the last one again."""
    for dim, index in enumerate(_indices(program, node, at)):
        value = value.index_select(dim, index.clamp(max=int(node.shape[dim]) - 1))
    return value


def _together(program: Program, node: Node, parts: Sequence[Tensor]) -> Tensor:
    """The whole of what the ranks hold: blocks pasted, summands added. What is the same must be the same."""
    mesh, states = program.layout.mesh, node.state or {}
    found = torch.full([int(s) for s in node.shape], float("nan")).to(parts[0].dtype)
    summed = [a for a in mesh if isinstance(states.get(a), Partial)]
    places = [dict(zip(mesh, at, strict=True)) for at in product(*(range(n) for n in mesh.values()))]
    groups: dict[tuple[int, ...], list[Tensor]] = {}
    where: dict[tuple[int, ...], Place] = {}
    for at, value in zip(places, parts, strict=True):
        key = tuple(at[a] for a in mesh if a not in summed)
        groups.setdefault(key, []).append(value)
        where.setdefault(key, at)
    same: dict[tuple[int, ...], Tensor] = {}
    for key, values in groups.items():
        at = where[key]
        indices = _indices(program, node, at)
        total = torch.stack(values).sum(0).to(found.dtype) if len(values) > 1 else values[0]
        if list(total.shape) != [len(i) for i in indices]:
            return NOTHING
        cut = tuple(at[a] for a in mesh if isinstance(states.get(a), Shard))
        if cut in same and _apart(same[cut], total) > 1e-12:
            return NOTHING
        same[cut] = total
        for dim, index in enumerate(indices):  # a row of padding belongs to nobody
            kept = index < int(node.shape[dim])
            total = total.index_select(dim, kept.nonzero().flatten())
        mesh_index = [i[i < int(s)] for i, s in zip(indices, node.shape, strict=True)]
        if mesh_index:
            found[torch.meshgrid(*mesh_index, indexing="ij")] = total
        else:
            found = total
    return found


def _indices(program: Program, node: Node, at: Place) -> list[Tensor]:
    by_factor: dict[int, list[str]] = {}
    for axis in program.layout.mesh:  # in alphabetical order, as the layout names them: outermost first
        state = (node.state or {}).get(axis, Invariant())
        if isinstance(state, Shard):
            by_factor.setdefault(state.factor, []).append(axis)
    return [index(axis, by_factor, program.layout.mesh, at) for axis in node.named]


def index(axis: Axis, by_factor: Mapping[int, Sequence[str]], mesh: Mapping[str, int], at: Place) -> Tensor:
    """The indices of the whole dimension that a rank has, in order."""
    found: list[Tensor] = []
    offset = 0
    for segment in axis.segments:
        index, size = torch.zeros(1, dtype=torch.int64), 1
        for factor in segment:
            block, parts = 0, 1
            for name in by_factor.get(factor.id, ()):
                block, parts = block * mesh[name] + at[name], parts * mesh[name]
            count = -(-int(factor.size) // parts)  # padded up
            own = torch.arange(block * count, (block + 1) * count)
            index = (index[:, None] * int(factor.size) + own).flatten()
            size *= int(factor.size)
        found.append(index + offset)
        offset += size
    return torch.cat(found)
