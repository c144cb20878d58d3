"""Values that leave a repeated block by another way than its result.

A hook may collect what a module inside of every block makes, or the model may read an attribute that a block has set.
Only one block of each kind is traced, so the loss would have its value alone and miss those of all others.
"""

from __future__ import annotations

from torch import Tensor, fx
from torch.export import ExportedProgram


def escaping(program: ExportedProgram) -> set[int]:
    """The sites from whose bodies a value is read behind the body's end, by something that is no output itself."""
    nodes = [n for n in program.graph.nodes if n.op != "output"]
    order = {node: i for i, node in enumerate(nodes)}
    ends = {n.args[1]: order[n] for n in nodes if str(n.target).startswith("graphpar.leave")}
    starts = {n.args[1]: order[n] for n in nodes if str(n.target).startswith("graphpar.enter")}
    return {site for site, end in ends.items() if _escapes(nodes[starts[site] : end], end, order)}


def _escapes(body: list[fx.Node], end: int, order: dict[fx.Node, int]) -> bool:
    made = {body[0]}
    for node in body[1:]:
        if not made.isdisjoint(node.all_input_nodes) and _is_tensor(node):
            made.add(node)
    return any(order.get(user, end) > end for node in made for user in node.users)


def _is_tensor(node: fx.Node) -> bool:
    """Whether it is a tensor or several: sizes are the same wherever they are read."""
    return isinstance(node.meta.get("val"), (Tensor, tuple, list))
