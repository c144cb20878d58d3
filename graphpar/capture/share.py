"""What every repeated block is given anew is given once.

A model may write `block(x, self.cos[:t], self.sin[:t])` in its loop over the blocks. Each call then gets slices of its
own that are equal to those of the call before. Where nothing of them is drawn at random, one is all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    given = _before(value for call in translation.calls for value in call.inputs)
    wanted = {node for node in given if node.origin.module in callers}
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


def _before(values: Iterable[Node]) -> set[Node]:
    """The values that these are made of, and they themselves, where all of it may be shared."""
    fixed: dict[Node, bool] = {}

    def may(node: Node) -> bool:
        if node not in fixed:
            operands = [may(a) for a in node.operands]
            fixed[node] = node.op not in ANEW and all(operands)
        return fixed[node]

    for value in values:
        may(value)
    return {node for node, shared in fixed.items() if shared and node.op not in GIVEN}


def _key(node: Node) -> object:
    """What makes two nodes equal."""
    args = tuple(id(a) if isinstance(a, Node) else repr(a) for a in node.args)
    return node.op, args, repr(sorted(node.attrs.items())), node.shape, node.dtype


def _mapped(call: BlockCall, new: dict[Node, Node]) -> BlockCall:
    parts = {name: tuple(new[v] for v in getattr(call, name)) for name in PARTS}
    return replace(call, **parts)
