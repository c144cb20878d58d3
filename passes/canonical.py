"""One spelling per idea.

What it does   reshapes around a linear that only flatten and restore leading dimensions go; a reshape of a reshape is
               one; so are permutations; joining nothing to something is none.
Why            a projection written for two dimensions is the same projection for three, and then its axes keep their
               places.
When not       the reshape mixes dimensions.
"""

from dataclasses import replace

from graphpar.ir.graph import Node
from graphpar.rewrite.passes import Pass


def reshape(node: Node) -> Node | None:
    """Undo a flatten behind a linear; merge reshapes; drop those that change nothing."""
    (x,) = node.operands
    if x.shape == node.shape:
        return x
    if x.op == "linear" and isinstance(x.args[0], Node) and x.args[0].op == "reshape":
        flat = x.args[0]
        source, shape = flat.operands[0], (*node.shape[:-1], flat.shape[-1])
        if node.shape[-1] == x.shape[-1]:
            unflat = source if source.shape == shape else replace(flat, args=(source,), shape=shape)
            return replace(x, args=(unflat, *x.args[1:]), shape=node.shape)
    if x.op == "reshape":
        (inner,) = x.operands
        return inner if inner.shape == node.shape else replace(node, args=(inner,))
    return None


def permute(node: Node) -> Node | None:
    """A permutation of a permutation is one; a permutation of nothing is none."""
    (x,) = node.operands
    order = node.attrs["order"]
    if x.op == "permute":
        order = tuple(x.attrs["order"][d] for d in order)
        (x,) = x.operands
    if order == tuple(range(node.rank)):
        return x
    return None if x is node.operands[0] else replace(node, args=(x,), attrs={"order": order})


def cat(node: Node) -> Node | None:
    """Operands of no elements add nothing."""
    parts = tuple(a for a in node.operands if 0 not in a.shape)
    if len(parts) == len(node.args) or not parts:
        return None
    return parts[0] if len(parts) == 1 else replace(node, args=parts)


def scalars(node: Node) -> Node | None:
    """A tensor of one known value and no dimensions is a number."""
    if not any(a.op == "full" and a.rank == 0 for a in node.operands) or all(a.rank == 0 for a in node.operands):
        return None
    return replace(node, args=tuple(_number(a) if isinstance(a, Node) else a for a in node.args))


def _number(node: Node) -> Node | float | int:
    if node.op != "full" or node.rank:
        return node
    return float(node.attrs["value"]) if node.dtype.startswith("float") else int(node.attrs["value"])


_POINTWISE = "add sub mul div where maximum minimum eq ne lt le gt ge".split()

canonical = Pass({"reshape": reshape, "permute": permute, "cat": cat, **dict.fromkeys(_POINTWISE, scalars)})
