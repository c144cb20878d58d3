"""Operations on each element: linear ones leave a sum that is still to be taken alone, others do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphpar.check.dims import Wrong
from graphpar.check.rules import Stream, rule, tensor
from graphpar.check.value import Value, elementwise

LINEAR = (".clone", ".contiguous", ".double", ".float", ".to", ".type_as", "neg", "upcast")
NONLINEAR = (
    *(
        f"{owner}.{name}"
        for owner in ("F", "torch", "")
        for name in ("gelu", "relu", "sigmoid", "silu", "softplus", "tanh")
    ),
    *(
        f"{owner}.{name}"
        for owner in ("torch", "")
        for name in ("abs", "cos", "erf", "exp", "log", "pow", "rsqrt", "sin")
    ),
    *(
        f"{owner}.{name}"
        for owner in ("torch", "")
        for name in ("clamp", "reciprocal", "sqrt", "square", "log1p", "expm1")
    ),
    "F.elu",
    "F.hardtanh",
    "F.leaky_relu",
    "F.mish",
    "F.relu6",
    "F.logsigmoid",
    "F.softsign",
)
EXACT = (".bool", ".int", ".long", ".detach", "invert")
COMPARE = (".eq", ".ge", ".gt", ".le", ".lt", ".ne", ".logical_and", ".logical_or", ".logical_not", ".isinf", ".isnan")


@rule(*LINEAR)
def linear(x: Value, *_: Any, **__: Any) -> Value:
    """x, or a multiple of it."""
    return x


@rule(*NONLINEAR, "F.dropout")
def nonlinear(x: object, *operands: object, **_: Any) -> Value:
    """A function of each element; operands may be tensors."""
    return elementwise([tensor(x), *(o for o in operands if isinstance(o, Value))], "other")


@rule(*EXACT)
def without_gradient(x: Value, *_: Any) -> Value:
    """A function that has no gradient."""
    return replace(elementwise([x], "other"), grad=False)


@rule("compare", *COMPARE)
def compare(*operands: object) -> Value:
    """Truth values."""
    return replace(elementwise([tensor(o) for o in operands], "other"), grad=False, replicated=frozenset())


@rule("add", "subtract", ".add", ".sub", "torch.add")
def add(*operands: object, **_: Any) -> Value:
    """A sum or a difference."""
    return elementwise([tensor(o) for o in operands], "add")


@rule("multiply", ".mul", "torch.mul")
def multiply(*operands: object) -> Value:
    """A product."""
    return elementwise([tensor(o) for o in operands], "multiply")


@rule("divide", ".div", "torch.div")
def divide(x: object, y: object, **_: Any) -> Value:
    """A quotient: of a sum that is still to be taken, never by one."""
    if tensor(y).partial:
        raise Wrong(f"division by {y}, which is still to be summed over {' '.join(sorted(tensor(y).partial))}")
    return elementwise([tensor(x), tensor(y)], "multiply")


@rule(
    "power", "modulo", "floor", "and", "or", "torch.maximum", "torch.minimum", "torch.logical_and", "torch.logical_or"
)
def other(*operands: object) -> Value:
    """Any other function of two elements."""
    return elementwise([tensor(o) for o in operands], "other")


@rule("torch.where", ".where")
def where(condition: object, x: object, y: object) -> Value:
    """One or the other."""
    return elementwise([tensor(condition), tensor(x), tensor(y)], "other")


@rule(".masked_fill")
def masked_fill(x: Value, mask: Value, value: object) -> Value:
    """x, or a value where the mask says so."""
    return elementwise([x, mask, tensor(value)], "other")


@rule("dropout")
def dropout(x: Value, p: float, training: object, stream: Stream, **_: Any) -> Value:
    """Masks are equal where x is the same, and independent where it is cut."""
    del p, training
    check_stream(x, stream)
    return x


def check_stream(x: Value, stream: Stream) -> None:
    """Raise Wrong if random numbers for x would be equal on parts, or different on copies, of it."""
    if equal := x.cut - stream.axes:
        raise Wrong(f"{x} is cut over {' '.join(sorted(equal))}, but its random numbers are the same on every part")
    if different := stream.axes - x.cut:
        raise Wrong(f"{x} is not cut over {' '.join(sorted(different))}, but its random numbers differ there")
