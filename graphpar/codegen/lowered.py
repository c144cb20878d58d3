"""Expressions of ops that run over a cut axis in their own way: lookups, losses, norms, softmax."""

from __future__ import annotations

from graphpar.codegen.expression import ATOM, TIMES, Scope, Text, arg, behind, number
from graphpar.ir.graph import Node


def layer_norm(node: Node, scope: Scope) -> Text:
    x, weight, bias = (arg(node, i, scope).text for i in range(3))
    if split := node.attrs.get("split"):
        name = scope.need("split_layer_norm")
        return Text(f"{name}({x}, {weight}, {bias}, {scope.axis(split)}, {node.shape[-1]}, {node.attrs['eps']})")
    shape = ", ".join(str(node.shape[i]) for i in range(node.rank - node.attrs["dims"], node.rank))
    shape = f"({shape},)" if node.attrs["dims"] == 1 else f"({shape})"
    return Text(f"F.layer_norm({x}, {shape}, {weight}, {bias}, {node.attrs['eps']})")


def rms_norm(node: Node, scope: Scope) -> Text:
    x, weight = (arg(node, i, scope).text for i in range(2))
    if split := node.attrs.get("split"):
        name = scope.need("split_rms_norm")
        return Text(f"{name}({x}, {weight}, {scope.axis(split)}, {node.shape[-1]}, {node.attrs['eps']})")
    shape = ", ".join(str(s) for s in node.shape[node.rank - node.attrs["dims"] :])
    shape = f"({shape},)" if node.attrs["dims"] == 1 else f"({shape})"
    return Text(f"F.rms_norm({x}, {shape}, {weight}, {node.attrs['eps']})")


def softmax(node: Node, scope: Scope) -> Text:
    x, dim = arg(node, 0, scope), behind(node.attrs["dim"], node.rank)
    if split := node.attrs.get("split"):
        return Text(f"{scope.need('split_softmax')}({x.text}, {dim}, {scope.axis(split)})")
    return Text(f"{x.inside(ATOM)}.{node.op}({dim})")


def cross_entropy(node: Node, scope: Scope) -> Text:
    logits, labels, a = arg(node, 0, scope).text, arg(node, 1, scope).text, node.attrs
    options = f", ignore_index={a['ignore']}" if a["ignore"] != -100 else ""
    options += f", label_smoothing={number(a['smoothing'])}" if a["smoothing"] else ""
    if split := a.get("split"):
        name = scope.need("vocab_cross_entropy")
        options += ', reduction="none"' if a["reduction"] == "none" else ""
        loss = f"{name}({logits}, {labels}, {scope.axis(split)}, vocab={node.operands[0].shape[-1]}{options})"
        if a["reduction"] == "none" and node.rank > 1:
            loss += f".view_as({labels})"
    else:
        rank = node.operands[0].rank
        moved = f"{arg(node, 0, scope).inside(ATOM)}.movedim(-1, 1)" if rank > 2 else logits
        how = "none" if a["reduction"] == "none" else "sum"
        loss = f'F.cross_entropy({moved}, {labels}{options}, reduction="{how}")'
    if a["reduction"] != "mean":
        return Text(loss)
    return Text(f"{loss} / {arg(node, 2, scope).text}", TIMES)


def embedding(node: Node, scope: Scope) -> Text:
    table, ids = arg(node, 0, scope).text, arg(node, 1, scope).text
    padding = f", padding_idx={node.attrs['padding']}" if "padding" in node.attrs else ""
    if split := node.attrs.get("split"):
        return Text(f"{scope.need('vocab_embedding')}({ids}, {table}, {scope.axis(split)}{padding})")
    return Text(f"F.embedding({ids}, {table}{padding})")
