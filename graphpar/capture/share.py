"""What every repeated block is given anew is given once.

A model may write `block(x, self.cos[:t], self.sin[:t])` in its loop over the blocks. Each call then gets slices of its
own that are equal to those of the call before. Where nothing of them is drawn at random, one is all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphpar.capture.siblings import Site
from graphpar.capture.translate import BlockCall, Translation
from graphpar.ir.graph import Node

GIVEN = frozenset({"input", "parameter", "buffer", "constant"})
PARTS = ("inputs", "outputs", "body_inputs", "body_outputs")
ANEW = frozenset({"enter", "leave", "dropout"})  # not shared, nor is what is made of them


def share(translation: Translation, sites: Sequence[Site]) -> Translation:
    """The translation with each repeated value that calls are given replaced by its first.

    Only what the module that runs the blocks makes itself is shared: a value inside a block stays there.
    """
    callers = {sites[call.site].path.rpartition(".")[0] for call in translation.calls}
    wanted = {node for node in _given(translation) & _fixed(translation) if node.origin.module in callers}
    new: dict[Node, Node] = {}
    first: dict[object, Node] = {}
    nodes: list[Node] = []
    for node in translation.nodes:
        args = tuple(new[a] if isinstance(a, Node) else a for a in node.args)
        own = node if args == node.args else replace(node, args=args)
        new[node] = first.setdefault(_key(own), own) if node in wanted else own
        if new[node] is own:
            nodes.append(own)
    calls = [_mapped(call, new) for call in translation.calls]
    outputs = [new[o] if isinstance(o, Node) else o for o in translation.outputs]
    return replace(translation, nodes=nodes, calls=calls, outputs=outputs)


def _given(translation: Translation) -> set[Node]:
    """What calls are given, and what that is made of."""
    found = {value for call in translation.calls for value in call.inputs}
    for node in reversed(translation.nodes):
        if node in found:
            found.update(node.operands)
    return found


def _fixed(translation: Translation) -> set[Node]:
    """What is made without random numbers and blocks, of tensors of the model and the caller, and not these."""
    found: set[Node] = set()
    for node in translation.nodes:
        if node.op not in ANEW and all(a in found for a in node.operands):
            found.add(node)
    return {node for node in found if node.op not in GIVEN}


def _key(node: Node) -> object:
    """What makes two nodes equal."""
    args = tuple(id(a) if isinstance(a, Node) else repr(a) for a in node.args)
    return node.op, args, repr(sorted(node.attrs.items())), node.shape, node.dtype


def _mapped(call: BlockCall, new: dict[Node, Node]) -> BlockCall:
    parts = {name: tuple(new[v] for v in getattr(call, name)) for name in PARTS}
    return replace(call, **parts)
