"""ATen calls that work element by element."""

from __future__ import annotations

import sympy
from torch.utils._sympy.functions import ToFloat

from graphpar.capture.aten.call import Call, Handler, Result, other, simplify_size
from graphpar.ir.graph import Node


def same(call: Call) -> Node:
    """The call changes nothing that a graph keeps: layout, storage, device."""
    return call.args[0]


def pointwise(op: str) -> Handler:
    """An op that works element by element, operands broadcast."""
    return lambda call: call.node(op, *call.args)


def scaled(op: str) -> Handler:
    """`a + alpha b` and `a - alpha b`."""

    def handler(call: Call) -> Node:
        a, b = call.args[:2]
        alpha = call.arg(2, "alpha", 1)
        if alpha != 1:
            b = Node("mul", (b, alpha), {}, b.shape, b.dtype, call.origin) if isinstance(b, Node) else b * alpha
        if not isinstance(b, Node) and b == 0:
            return a
        return call.node(op, a, b)

    return handler


def divide(call: Call) -> Node:
    """Division, with its rounding mode."""
    mode = call.arg(2, "rounding_mode")
    x, y = call.args[:2]
    if mode is None and isinstance(y, sympy.Expr) and y.has(ToFloat):  # a size: a quotient is a float in any case
        y = simplify_size(y.replace(ToFloat, lambda size: size))
    return call.node("div", x, y, **({"rounding": mode} if mode else {}))


def floor_divide(call: Call) -> Node:
    """Division, rounded down."""
    return call.node("div", *call.args[:2], rounding="floor")


def cast(call: Call) -> Node:
    """A change of dtype. A cast of float32 to float32 says "at least float32" and is kept as that."""
    (x, *_) = call.args
    if call.dtype != x.dtype:
        return call.node("cast", x, dtype=call.dtype)
    explicit = "to.dtype" in call.target or "_to_copy" in call.target or "softmax" in call.target
    if explicit and "layout" not in call.target and x.dtype == "float32" and not is_wide(x):
        return call.node("upcast", x)
    return x


def copied(call: Call) -> Node:
    """The other tensor's values in the shape and the dtype of the first."""
    x, value = call.args[:2]
    if value.dtype != x.dtype:
        value = Node("cast", (value,), {"dtype": x.dtype}, value.shape, x.dtype, call.origin)
    return value if value.shape == x.shape else call.node("expand", value)


_KEEPS_WIDTH = frozenset(
    {"add", "sub", "mul", "div", "pow", "neg", "rsqrt", "sqrt", "mean", "sum", "reshape", "softmax", "piece"}
)


def is_wide(x: Node) -> bool:
    """Whether the value is at least float32 whatever the compute dtype, since an upcast precedes it."""
    stack, seen = [x], 0
    while stack and seen < 64:
        node, seen = stack.pop(), seen + 1
        if node.op == "upcast":
            return True
        if node.op in _KEEPS_WIDTH:
            stack.extend(node.operands)
    return False


def masked_fill(call: Call) -> Node:
    """`value` where the mask holds."""
    x, mask, value = call.args
    return call.node("where", mask, value, x)


def clamp(call: Call) -> Node:
    """Values kept within bounds."""
    return call.node("clamp", call.args[0], low=call.arg(1, "min"), high=call.arg(2, "max"))


def dropout(call: Call) -> Node:
    """Dropout; `p` of zero is no op."""
    x, p = call.args[:2]
    return call.node("dropout", x, p=p) if p and call.arg(2, "train", True) else x


def gelu(call: Call) -> Node:
    """GELU, exact or by tanh."""
    return call.node("gelu", call.args[0], approximate=call.arg(1, "approximate", "none"))


def softplus(call: Call) -> Node:
    """Softplus."""
    return call.node("softplus", call.args[0], beta=call.arg(1, "beta", 1), threshold=call.arg(2, "threshold", 20))


def subtracted(call: Call) -> Node:
    """`b - alpha a`."""
    a, b, alpha = *call.args[:2], call.arg(2, "alpha", 1)
    taken = a if alpha == 1 else Node("mul", (a, alpha), {}, a.shape, a.dtype, call.origin)
    return call.node("sub", b, taken)


def logical(op: str) -> Handler:
    """Truth of truth values; of numbers it is not that of their bits, and has no word here."""
    return lambda call: call.node(op, *call.args) if _are(call, "bool") else other(call)


def bitwise_not(call: Call) -> Result:
    """The other truth value; of numbers it is another number, which has no word here."""
    return call.node("logical_not", *call.args) if _are(call, "bool") else other(call)


def _are(call: Call, dtype: str) -> bool:
    return all(x.dtype == dtype for x in call.args if isinstance(x, Node))
