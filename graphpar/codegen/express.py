"""Each op as a Python expression: the table from ops to torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy

from graphpar.capture.aten.call import Slot
from graphpar.codegen.choices import CHOICES
from graphpar.codegen.cutting import parts, select, slice_, transition
from graphpar.codegen.expression import (
    AND,
    ATOM,
    COMPARE,
    OR,
    PLUS,
    TIMES,
    UNARY,
    Scope,
    Text,
    Writer,
    arg,
    behind,
    call,
    infix,
    join,
    method,
    number,
)
from graphpar.codegen.lowered import cross_entropy, embedding, layer_norm, rms_norm, softmax
from graphpar.codegen.reshape import reshape
from graphpar.codegen.routed import by_expert, indexed_linear, kept, route
from graphpar.ir.graph import Node, Size


def write(node: Node, scope: Scope) -> Text:
    """The expression of a node."""
    return WRITERS.get(node.op, other)(node, scope)


def power(node: Node, scope: Scope) -> Text:
    base, exponent = arg(node, 0, scope), arg(node, 1, scope)
    if not isinstance(node.args[0], Node):
        return Text(f"{base.inside(ATOM)} ** {exponent.inside(ATOM)}", UNARY)
    return Text(f"{base.inside(ATOM)}.pow({exponent.text})")


def divide(node: Node, scope: Scope) -> Text:
    if "rounding" in node.attrs:
        a, b = arg(node, 0, scope), arg(node, 1, scope)
        return Text(f"torch.div({a.text}, {b.text}, rounding_mode={node.attrs['rounding']!r})")
    return infix("/", TIMES)(node, scope)


def linear(node: Node, scope: Scope) -> Text:
    x, w, bias = node.args
    assert isinstance(w, Node)
    weight = scope.operand(w).inside(ATOM)
    if node.attrs.get("transposed"):
        if bias is None:
            return Text(f"{arg(node, 0, scope).inside(TIMES)} @ {weight}", TIMES)
        weight = f"{weight}.T"
    args = [arg(node, 0, scope).text, weight] + ([arg(node, 2, scope).text] if bias is not None else [])
    _ = x
    return Text(f"F.linear({', '.join(args)})")


def sdpa(node: Node, scope: Scope) -> Text:
    q, k, v = (arg(node, i, scope).text for i in range(3))
    a = node.attrs
    options = [f"attn_mask={arg(node, 3, scope).text}"] if node.args[3] is not None else []
    options += ["is_causal=True"] if a["causal"] else []
    options += [f"scale={number(a['scale'])}"] if a["scale"] is not None else []
    options += ["enable_gqa=True"] if a["gqa"] else []
    if not a["dropout"]:
        return Text(f"F.scaled_dot_product_attention({', '.join([q, k, v, *options])})")
    stream, cut = scope.stream(node)
    options = [
        f"dropout_p={a['dropout']}",
        "training=self.training",
        f"stream={stream}",
        *([f"cut={cut}"] if cut else []),
        *options,
    ]
    return Text(f"{scope.need('attention')}({', '.join([q, k, v, *options])})")


def dropout(node: Node, scope: Scope) -> Text:
    stream, cut = scope.stream(node)
    options = f", cut={cut}" if cut else ""
    return Text(
        f"{scope.need('dropout')}({arg(node, 0, scope).text}, {node.attrs['p']}, self.training, {stream}{options})"
    )


def cast(node: Node, scope: Scope) -> Text:
    word = {"float32": "float", "int64": "long", "bool": "bool", "int32": "int"}.get(node.dtype)
    x = arg(node, 0, scope).inside(ATOM)
    return Text(f"{x}.{word}()" if word else f"{x}.to(torch.{node.dtype})")


def upcast(node: Node, scope: Scope) -> Text:
    return Text(f"{scope.need('upcast')}({arg(node, 0, scope).text})")


def reduce(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dims = tuple(behind(d, x.rank) for d in node.attrs["dims"])
    where = "" if len(dims) == x.rank and not node.attrs["keep"] else str(dims[0]) if len(dims) == 1 else str(dims)
    keep = ", keepdim=True" if node.attrs["keep"] else ""
    text = scope.operand(x).inside(ATOM)
    if node.op == "mean" and node.attrs.get("split"):
        total: Size = 1
        for d in node.attrs["dims"]:
            total = total * x.shape[d]
        return Text(f"{text}.sum({where}{keep}) / {scope.size(total, of=node)}", TIMES)
    extra = f", correction={node.attrs['correction']}" if node.op == "var" else ""
    return Text(f"{text}.{node.op}({f'{where}{keep}{extra}'.removeprefix(', ')})")


def of_rows(node: Node, scope: Scope) -> Text:
    x, at = arg(node, 0, scope).inside(ATOM), arg(node, 1, scope).text
    return Text(f"{x}[torch.arange({x}.shape[0], device={scope.device()}), {at}]", ATOM)


def permute(node: Node, scope: Scope) -> Text:
    order = node.attrs["order"]
    moved = [i for i, d in enumerate(order) if i != d]
    x = arg(node, 0, scope).inside(ATOM)
    if len(moved) == 2:
        a, b = moved
        return Text(f"{x}.mT" if b == a + 1 == node.rank - 1 else f"{x}.transpose({a}, {b})")
    return Text(f"{x}.permute({', '.join(map(str, order))})")


def reshaped(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    text = scope.operand(x).inside(ATOM)
    return Text(text + reshape(node, x, scope.local(x), scope.local(node), lambda s: scope.size(s, of=node)))


def unsqueeze(node: Node, scope: Scope) -> Text:
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.unsqueeze({behind(node.attrs['dim'], node.rank)})")


def expand(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    lead = node.rank - x.rank
    local = scope.local(node)
    sizes = [
        "-1" if i >= lead and x.shape[i - lead] == size else scope.size(local.axis(node.named[i]), of=node)
        for i, size in enumerate(node.shape)
    ]
    return Text(f"{scope.operand(x).inside(ATOM)}.expand({', '.join(sizes)})")


def pad(node: Node, scope: Scope) -> Text:
    value = node.attrs["value"]
    if not node.dtype.startswith(("float", "bfloat")) and float(value).is_integer():
        value = int(value)
    return Text(f"F.pad({arg(node, 0, scope).text}, {node.attrs['widths']}, value={number(value)})")


def arange(node: Node, scope: Scope) -> Text:
    numbers = [node.attrs[k] for k in ("start", "stop", "step")]
    start, stop, step = (number(n) if isinstance(n, float) else scope.size(n, of=node) for n in numbers)
    bounds = [stop]
    if numbers[0] != 0 or numbers[2] != 1:
        bounds.insert(0, start)
    if numbers[2] != 1:
        bounds.append(step)
    dtype = "" if node.dtype == "int64" else f", dtype=torch.{node.dtype}"
    return Text(f"torch.arange({', '.join(bounds)}{dtype}, device={scope.device()})")


def full(node: Node, scope: Scope) -> Text:
    sizes = [scope.size(s, of=node) for s in node.shape]
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    value = bool(node.attrs["value"]) if node.dtype == "bool" else node.attrs["value"]
    value = float(value) if node.dtype.startswith(("float", "bfloat")) and isinstance(value, int) else value
    dtype = "" if node.dtype == "float32" else f", dtype=torch.{node.dtype}"
    return Text(f"torch.full({shape}, {number(value)}{dtype}, device={scope.device()})")


def constant(node: Node, scope: Scope) -> Text:
    dtype = "" if node.dtype in ("float32", "int64", "bool") else f", dtype=torch.{node.dtype}"
    return Text(f"torch.tensor({node.attrs['value']!r}{dtype}, device={scope.device()})")


def einsum(node: Node, scope: Scope) -> Text:
    args = ", ".join(arg(node, i, scope).text for i in range(len(node.args)))
    return Text(f'torch.einsum("{node.attrs["equation"].replace("->", " -> ").replace(",", ", ")}", {args})')


def matmul(node: Node, scope: Scope) -> Text:
    return infix("@", TIMES)(node, scope)


def clamp(node: Node, scope: Scope) -> Text:
    bounds = [f"{w}={number(node.attrs[k])}" for w, k in (("min", "low"), ("max", "high")) if node.attrs[k] is not None]
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.clamp({', '.join(bounds)})")


def triangle(node: Node, scope: Scope) -> Text:
    diagonal = str(node.attrs["diagonal"]) if node.attrs["diagonal"] else ""
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.{node.op}({diagonal})")


def repeat_interleave(node: Node, scope: Scope) -> Text:
    local = scope.local(node)
    last = node.named[node.attrs["dim"]].factors[-1]
    x = arg(node, 0, scope).inside(ATOM)
    return Text(f"{x}.repeat_interleave({local.size(last)}, dim={behind(node.attrs['dim'], node.rank)})")


def other(node: Node, scope: Scope) -> Text:
    """An op under its own name, called as the source called it."""
    args = [_given(a, node, scope) for a in node.attrs["call"]]
    args += [
        f"{k}={_given(v, node, scope)}" for k, v in node.attrs["words"].items() if k not in ("device", "pin_memory")
    ]
    part = f"[{node.attrs['part']}]" if "part" in node.attrs else ""
    name = node.op.removesuffix(".default")
    return Text(f"torch.ops.{name}({', '.join(args)}){part}")


def _given(value: Any, node: Node, scope: Scope) -> str:
    if isinstance(value, Slot):
        return scope.operand(node.operands[value.index]).text
    if isinstance(value, tuple):
        return f"[{', '.join(_given(v, node, scope) for v in value)}]"
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return scope.size(value, of=node)
    return number(value)


WRITERS: Mapping[str, Writer] = {
    "add": infix("+", PLUS),
    "sub": infix("-", PLUS),
    "mul": infix("*", TIMES),
    "div": divide,
    "and": infix("&", AND),
    "or": infix("|", OR),
    "pow": power,
    "neg": lambda n, s: Text(f"-{arg(n, 0, s).inside(UNARY)}", UNARY),
    "logical_not": lambda n, s: Text(f"~{arg(n, 0, s).inside(UNARY)}", UNARY),
    **{
        name: infix(symbol, COMPARE, chains=False)
        for name, symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items()
    },
    **{
        name: call(f"torch.{name}")
        for name in ("tanh", "sigmoid", "exp", "log", "log1p", "expm1", "erf", "maximum", "minimum", "where")
    },
    **{name: call(f"F.{name}") for name in ("relu", "silu")},
    **{
        name: method(name)
        for name in (
            "rsqrt",
            "sqrt",
            "reciprocal",
            "cos",
            "sin",
            "abs",
            "square",
            "isnan",
            "floor",
            "ceil",
            "round",
            "sign",
            "detach",
        )
    },
    "gelu": lambda n, s: Text(
        f"F.gelu({arg(n, 0, s).text})"
        if n.attrs["approximate"] == "none"
        else f'F.gelu({arg(n, 0, s).text}, approximate="tanh")'
    ),
    "softplus": call("F.softplus", "beta", "threshold"),
    "linear": linear,
    "matmul": matmul,
    "einsum": einsum,
    "embedding": embedding,
    "cross_entropy": cross_entropy,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "softmax": softmax,
    "log_softmax": softmax,
    "sdpa": sdpa,
    "dropout": dropout,
    "cast": cast,
    "upcast": upcast,
    **dict.fromkeys(["sum", "mean", "amax", "amin", "argmax", "argmin", "var", "any", "all", "logsumexp"], reduce),
    "permute": permute,
    "reshape": reshaped,
    "unsqueeze": unsqueeze,
    "expand": expand,
    "slice": slice_,
    "select": select,
    "of_rows": of_rows,
    "piece": parts,
    "segment": parts,
    "cat": join("cat"),
    "stack": join("stack"),
    "pad": pad,
    "arange": arange,
    "full": full,
    "constant": constant,
    "clamp": clamp,
    **CHOICES,
    "tril": triangle,
    "triu": triangle,
    "repeat_interleave": repeat_interleave,
    **dict.fromkeys(
        [
            "all_gather",
            "all_gather_same",
            "all_reduce",
            "all_reduce_max",
            "grad_all_reduce",
            "reduce_scatter",
            "slice_",
            "slice_partial",
            "first_only",
            "all_to_all",
            "pad_partial",
        ],
        transition,
    ),
    "route": route,
    "kept": kept,
    "indexed_linear": indexed_linear,
    **dict.fromkeys(["dispatch", "expert_linear", "expert_bias", "combine"], by_expert),
}
