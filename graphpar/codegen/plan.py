"""plan.json: every decision of the compiler as one document."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from graphpar.codegen.local import Cuts
from graphpar.codegen.loss import COUNT, Labels, ignored, kind_of_labels, plain_mean
from graphpar.codegen.plan_causes import as_cause, as_rule, causes, families, place_of
from graphpar.codegen.plan_experts import experts
from graphpar.codegen.program import Program
from graphpar.codegen.routed import moves_rows
from graphpar.codegen.tree import Again, Body, Call, LoopCall, Statement
from graphpar.ir.axes import Axis
from graphpar.ir.graph import Graph, Node, Size, plain, reachable
from graphpar.ir.states import Shard
from graphpar.language.schema import Spec
from graphpar.names.named import Named

VERSION = 1


def plan(
    graph: Graph,
    root: Body,
    program: Program,
    named: Named,
    spec: Spec,
    labels: Labels | None,
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """The document. Sizes that depend on batch and seq are written as expressions in these two."""
    return {
        "version": VERSION,
        "source": dict(source),
        "class": graph.modules[""].cls,
        "mesh": dict(program.mesh),
        "data_axes": [a for a in spec.data_axes if program.mesh[a] > 1] or list(spec.data_axes),
        "layout": [str(rule) for rule in (*spec.layout, *([spec.moe.rule] if spec.moe else []))],
        "rules": [as_rule(rule) for rule in spec.rules],
        "dims": dict(named.sizes().items()),
        "inputs": [_input(n, program) for n in graph.inputs if n.attrs["name"] != COUNT],
        "count": labels is not None,
        "adds_up": plain_mean(graph),
        "rng": spec.numerics.rng,
        "ignore_index": labels.ignore if labels else ignored(graph),
        "labels": kind_of_labels(graph),
        "vocab": named.sizes().get("vocab"),
        "classes": named.sizes().get("classes"),
        "max_seq": _longest(named),
        "seq_multiple": _multiple(graph, program),
        "parameters": _tensors(graph, program, "parameter"),
        "buffers": _tensors(graph, program, "buffer"),
        "causes": families(graph),
        "unread": _unread(graph),
        "experts": experts(graph, program),
        "collectives": collectives(root, program),
        "pipeline": None,
    }


def digest(text: str) -> str:
    """A short hash of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chain(node: Node) -> set[Node]:
    return reachable([node])


def _input(node: Node, program: Program) -> dict[str, Any]:
    local = program.cuts(node)
    cut = {
        str(dim): [m for f in axis.factors for m in local.by_factor.get(f.id, ())]
        for dim, axis in enumerate(node.named)
    }
    return {
        "name": node.attrs["name"],
        "dtype": node.dtype,
        "axes": program.shape(node),
        "cut": {dim: axes for dim, axes in cut.items() if axes},
    }


def _longest(named: Named) -> int | None:
    """The longest sequence that every position table has a row for."""
    lengths = [
        _reach(node)
        for node in named.graph.nodes
        if node.op == "embedding" and node.operands[0].op == "parameter" and _is_positions(node.operands[1])
    ]
    return min(lengths) if lengths else None


def _is_positions(node: Node) -> bool:
    return all(n.op not in ("input", "parameter") for n in _chain(node)) and any(n.op == "arange" for n in _chain(node))


def _reach(node: Node) -> int:
    table, ids = node.operands
    offset = sum(int(a) for n in _chain(ids) if n.op == "add" for a in n.args if isinstance(a, int))
    return int(table.shape[0]) - offset


def _multiple(graph: Graph, program: Program) -> int:
    """What the sequence length must divide by: the most parts that some value cuts it into."""
    most = 1
    for node in graph.nodes:
        local = program.cuts(node)
        for axis in node.named:
            for factor in axis.factors:
                if factor.name == "seq":
                    most = max(most, local.parts(factor))
    return most


def _tensors(graph: Graph, program: Program, op: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node in graph.nodes:
        if node.op == op:
            for name in graph.members(node.attrs["name"]):
                found[name] = {**_tensor(graph, node, name, program), "family": node.attrs["name"]}
    order = list(graph.tensors)
    return dict(sorted(found.items(), key=lambda entry: order.index(entry[0])))


def _tensor(graph: Graph, node: Node, name: str, program: Program) -> dict[str, Any]:
    info, local = graph.tensors[name], program.cuts(node)
    entry: dict[str, Any] = {
        "shape": list(info.shape),
        "local_shape": [local.axis(a) for a in node.named],
        "dtype": info.dtype,
        "axes": program.shape(node),
        "dims": [_dim(a, local) for a in node.named],
    }
    if info.aliases:
        entry["aliases"] = list(info.aliases)
    if node.op == "buffer":
        return {**entry, "persistent": info.persistent}
    sharded = {a for axes in local.by_factor.values() for a in axes}
    return {
        **entry,
        "trainable": info.trainable,
        "grad_sum": list(node.attrs.get("grad_sum", ())),
        "sharded": [a for a in program.mesh if a in sharded],
    }


def _unread(graph: Graph) -> dict[str, Any]:
    """What the source's state_dict has and the program does not: tensors that no loss depends on."""
    held = {n for node in graph.nodes if node.op in ("parameter", "buffer") for n in graph.members(node.attrs["name"])}
    return {
        name: {"shape": list(info.shape), "dtype": info.dtype, "aliases": list(info.aliases)}
        for name, info in graph.tensors.items()
        if info.persistent and name not in held
    }


def _dim(axis: Axis, local: Cuts) -> list[list[list[Any]]]:
    """A dimension as segments of factors: [size, padded if need be, and the mesh axes that cut it]."""
    return [
        [[_whole(local.size(f), local.parts(f)), list(local.by_factor.get(f.id, ()))] for f in segment] or [[1, []]]
        for segment in axis.segments
    ]


def _whole(size: Size, parts: int) -> int:
    return int(size) * parts


# ---------------------------------------------------------------- collectives


def collectives(root: Body, program: Program) -> list[dict[str, Any]]:
    """What runs forward, in order; a loop holds one list per kind. Backward runs in the opposite order.

    Each entry names both directions: `forward` and `backward` are the kinds of collective, or null. What is run again
    in the backward pass, before its backward, is `again` in one list.
    """
    found: list[dict[str, Any]] = []
    for item in root.items:
        match item:
            case Statement(node):
                found += _of(node, program)
            case Call(body):
                found += collectives(body, program)
            case Again(body):
                found += _again(collectives(body, program))
            case LoopCall(loop, bodies):
                inner = [collectives(body, program) for body in bodies]
                if any(inner):
                    found.append({"loop": loop.path, "kinds": list(loop.kinds), "bodies": inner})
    return _again(found) if program.graph.recomputed.get(plain(root.path)) is True else found


def _again(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"again": entries}] if entries else []


def _of(node: Node, program: Program) -> list[dict[str, Any]]:
    if "forward" in node.attrs:
        return [_transition(node, program)] if node.attrs["forward"] or node.attrs["backward"] else []
    return _inner(node, program) if node.attrs.get("split") else []


def _transition(node: Node, program: Program) -> dict[str, Any]:
    before, after = (_elements(n, program) for n in (node.operands[0], node))
    forward, backward = node.attrs["forward"], node.attrs["backward"]
    return {
        "op": node.op,
        "axis": node.attrs["axis"],
        "forward": forward,
        "forward_elements": before if forward else None,
        "backward": backward,
        "backward_elements": after if backward else None,
        "dtype": "int64" if node.dtype == "routing" else node.dtype,
        "shape": program.shape(node),
        **({"routed": _routed(node)} if moves_rows(node) and node.dtype != "routing" else {}),
        **place_of(node.origin),
        "reason": node.note,
        "rule": as_rule(node.attrs.get("rule")),
        "causes": causes(node),
        "readers": _readers(node, program),
    }


def _readers(node: Node, program: Program) -> list[str]:
    """The modules of the source that read a value in its new state."""
    users = [user for user in program.users.get(node, ()) if "forward" not in user.attrs]
    return list(dict.fromkeys(user.origin.module for user in users if user.origin.module))


def _routed(node: Node) -> str:
    """How many rows all ranks together move: every one, or at most every one where experts have a capacity."""
    limited = any(n.op == "route" and len(n.args) > 1 for n in reachable(node.operands[-1:]))
    return "at most" if limited else "all"


def _inner(node: Node, program: Program) -> list[dict[str, Any]]:
    """The collectives inside ops that run over a cut axis in their own way (see the runtime's docstrings)."""
    axis = " ".join(a for a in node.attrs["split"])
    tokens = {
        "cross_entropy": lambda: ("all_gather", f"2*({_elements(node.operands[1], program)})", None, None),
        "layer_norm": lambda: (
            "all_gather",
            f"2*({_rows(node, program)})",
            "all_reduce",
            f"2*({_rows(node, program)})",
        ),
        "rms_norm": lambda: ("all_reduce", _rows(node, program), "all_reduce", _rows(node, program)),
        "softmax": lambda: ("all_gather", _rows(node, program), "all_reduce", _rows(node, program)),
    }
    if node.op not in tokens:
        return []
    split = [cause for cause in node.causes if cause.axis in node.attrs["split"]]
    forward, sent, backward, returned = tokens[node.op]()
    return [
        {
            "op": node.op,
            "axis": axis,
            "forward": forward,
            "forward_elements": sent,
            "backward": backward,
            "backward_elements": returned,
            "dtype": node.dtype,
            "shape": program.shape(node),
            **place_of(node.origin),
            "reason": f"{node.op} over a cut axis",
            "rule": next((as_rule(cause.rule) for cause in split), None),
            "causes": [as_cause(cause) for cause in split],
        }
    ]


def _elements(node: Node, program: Program) -> str:
    local = program.cuts(node)
    total: Size = 1
    if node.dtype == "routing":  # how many rows each expert gets
        return str(node.named[0].factors[0].size)
    for axis in node.named:
        total = total * local.axis(axis)
    return str(total)


def _rows(node: Node, program: Program) -> str:
    local = program.cuts(node)
    total: Size = 1
    for axis in node.named[:-1]:
        total = total * local.axis(axis)
    return str(total)


def states(node: Node) -> dict[str, str]:
    """The state of a value per mesh axis, as text."""
    return {a: s.name if isinstance(s, Shard) else str(s) for a, s in (node.state or {}).items()}


def flat(entries: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The entries in the order in which they run forward, loops written out."""
    found: list[Mapping[str, Any]] = []
    for entry in entries:
        if "loop" in entry:
            for kind in entry["kinds"]:
                found += flat(entry["bodies"][kind])
        elif "again" in entry:
            found += flat(entry["again"])
        else:
            found.append(entry)
    return found


def backward(entries: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """What runs in the backward pass, in order: the direction of each entry, `forward` where it is run again."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    for entry in reversed(entries):
        if "loop" in entry:
            for kind in reversed(entry["kinds"]):
                found += backward(entry["bodies"][kind])
        elif "again" in entry:
            found += [("forward", inner) for inner in flat(entry["again"])]
            found += backward(entry["again"])
        else:
            found.append(("backward", entry))
    return found
