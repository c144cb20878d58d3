"""Each op as a Python expression: the table from ops to torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

import sympy

from graphpar.capture.aten import Slot
from graphpar.codegen.local import Cuts, blocks
from graphpar.codegen.reshape import reshape
from graphpar.ir.graph import Node, Size

ATOM, UNARY, TIMES, PLUS, AND, OR, COMPARE = 100, 90, 80, 70, 60, 50, 40


@dataclass(frozen=True)
class Text:
    """An expression and how tightly its outermost operator binds."""

    text: str
    binds: int = ATOM

    def inside(self, binds: int, *, strict: bool = False) -> str:
        """The text as an operand of an operator that binds so tightly."""
        loose = self.binds < binds or (strict and self.binds == binds)
        return f"({self.text})" if loose else self.text


class Scope(Protocol):
    """What an expression may refer to: operands, mesh axes, sizes, imports."""

    def operand(self, node: Node) -> Text:
        """The name or the nested expression of an operand."""
        ...

    def axis(self, names: Sequence[str]) -> str:
        """The attribute that holds a mesh axis, or the product of several."""
        ...

    def local(self, node: Node) -> Cuts:
        """The cuts of a value."""
        ...

    def size(self, size: Size, *, of: Node) -> str:
        """A size as an expression of the sizes that this body can read; brackets around more than one term."""
        ...

    def need(self, name: str) -> str:
        """Import a name of the runtime, and return it."""
        ...

    def stream(self, node: Node) -> tuple[str, str]:
        """The random stream of a value and the dimensions in which it is cut, as expressions."""
        ...

    def device(self) -> str:
        """The device of some input of this body."""
        ...


Writer = Callable[[Node, Scope], Text]


def write(node: Node, scope: Scope) -> Text:
    """The expression of a node."""
    return WRITERS.get(node.op, other)(node, scope)


def number(value: Any) -> str:
    """A constant as Python."""
    if isinstance(value, float) and value in (inf, -inf):
        return 'float("inf")' if value > 0 else 'float("-inf")'
    if isinstance(value, sympy.Expr):
        return str(float(value)) if value.is_Float else str(value)
    return repr(value)


def arg(node: Node, index: int, scope: Scope) -> Text:
    """An argument, tensor or scalar."""
    value = node.args[index] if len(node.args) > index else None
    if isinstance(value, Node):
        return scope.operand(value)
    if isinstance(value, sympy.Expr) and value.free_symbols:
        return Text(scope.size(value, of=node))
    text = number(value)
    return Text(text, UNARY if text.startswith("-") else ATOM)


def infix(symbol: str, binds: int, *, chains: bool = True) -> Writer:
    """`a + b`. A chain of the same operator on the left needs no brackets if it is associative to the left."""

    def writer(node: Node, scope: Scope) -> Text:
        left = arg(node, 0, scope).inside(binds, strict=not chains)
        right = arg(node, 1, scope).inside(binds, strict=True)
        return Text(f"{left} {symbol} {right}", binds)

    return writer


def call(name: str, *options: str) -> Writer:
    """`torch.tanh(x)`; options are attributes passed by name."""

    def writer(node: Node, scope: Scope) -> Text:
        args = [arg(node, i, scope).text for i in range(len(node.args))]
        args += [f"{o}={number(node.attrs[o])}" for o in options]
        return Text(f"{name}({', '.join(args)})")

    return writer


def method(name: str) -> Writer:
    """`x.rsqrt()`."""
    return lambda node, scope: Text(f"{arg(node, 0, scope).inside(ATOM)}.{name}()")


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


def embedding(node: Node, scope: Scope) -> Text:
    table, ids = arg(node, 0, scope).text, arg(node, 1, scope).text
    padding = f", padding_idx={node.attrs['padding']}" if "padding" in node.attrs else ""
    if split := node.attrs.get("split"):
        return Text(f"{scope.need('vocab_embedding')}({ids}, {table}, {scope.axis(split)}{padding})")
    return Text(f"F.embedding({ids}, {table}{padding})")


def cross_entropy(node: Node, scope: Scope) -> Text:
    logits, labels, a = arg(node, 0, scope).text, arg(node, 1, scope).text, node.attrs
    options = f", ignore_index={a['ignore']}" if a["ignore"] != -100 else ""
    options += f", label_smoothing={number(a['smoothing'])}" if a["smoothing"] else ""
    if split := a.get("split"):
        (classes, *_) = [f for x in (node.operand_axes or ())[0] or () for f in x.factors][-1:]
        name = scope.need("vocab_cross_entropy")
        options += ', reduction="none"' if a["reduction"] == "none" else ""
        loss = f"{name}({logits}, {labels}, {scope.axis(split)}, vocab={classes.size}{options})"
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
    x, dim = arg(node, 0, scope), _behind(node.attrs["dim"], node.rank)
    if split := node.attrs.get("split"):
        return Text(f"{scope.need('split_softmax')}({x.text}, {dim}, {scope.axis(split)})")
    return Text(f"{x.inside(ATOM)}.{node.op}({dim})")


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
    options = [f"dropout_p={a['dropout']}", "training=self.training", f"stream={stream}", *([f"cut={cut}"] if cut else []), *options]
    return Text(f"{scope.need('attention')}({', '.join([q, k, v, *options])})")


def dropout(node: Node, scope: Scope) -> Text:
    stream, cut = scope.stream(node)
    options = f", cut={cut}" if cut else ""
    return Text(f"{scope.need('dropout')}({arg(node, 0, scope).text}, {node.attrs['p']}, self.training, {stream}{options})")


def cast(node: Node, scope: Scope) -> Text:
    word = {"float32": "float", "int64": "long", "bool": "bool", "int32": "int"}.get(node.dtype)
    x = arg(node, 0, scope).inside(ATOM)
    return Text(f"{x}.{word}()" if word else f"{x}.to(torch.{node.dtype})")


def upcast(node: Node, scope: Scope) -> Text:
    return Text(f"{scope.need('upcast')}({arg(node, 0, scope).text})")


def reduce(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dims = tuple(_behind(d, x.rank) for d in node.attrs["dims"])
    where = "" if len(dims) == x.rank and not node.attrs["keep"] else str(dims[0]) if len(dims) == 1 else str(dims)
    keep = ", keepdim=True" if node.attrs["keep"] else ""
    text = scope.operand(x).inside(ATOM)
    if node.op == "mean" and node.attrs.get("split"):
        total: Size = 1
        for d in node.attrs["dims"]:
            total = total * x.shape[d]
        return Text(f"{text}.sum({where}{keep}) / {scope.size(total, of=node)}", TIMES)
    extra = f", correction={node.attrs['correction']}" if node.op == "var" else ""
    return Text(f"{text}.{node.op}({where}{keep}{extra})")


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
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.unsqueeze({_behind(node.attrs['dim'], node.rank)})")


def expand(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    lead = node.rank - x.rank
    local = scope.local(node)
    sizes = [
        "-1" if i >= lead and x.shape[i - lead] == size else scope.size(local.axis((node.axes or ())[i]), of=node)
        for i, size in enumerate(node.shape)
    ]
    return Text(f"{scope.operand(x).inside(ATOM)}.expand({', '.join(sizes)})")


def slice_(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dim, start, stop, step = (node.attrs[k] for k in ("dim", "start", "stop", "step"))
    whole = stop == x.shape[dim]
    if step == 1:
        start, stop = (_bound(b, x, dim, scope) for b in (start, stop))
    elif not whole and stop > x.shape[dim] - step:
        whole = True  # every step-th index to the end
    low = "" if start == 0 else _index(start, node, scope)
    high = "" if whole else _index(stop, node, scope)
    index = f"{low}:{high}" + (f":{step}" if step != 1 else "")
    lead = ["..."] if dim == x.rank - 1 and dim > 1 else [":"] * dim
    return Text(f"{scope.operand(x).inside(ATOM)}[{', '.join([*lead, index])}]")


def _index(bound: Any, node: Node, scope: Scope) -> str:
    return str(bound) if isinstance(bound, int) else scope.size(bound, of=node)


def _bound(bound: Any, x: Node, dim: int, scope: Scope) -> Any:
    """An offset along a global axis as one along the local axis."""
    if not isinstance(bound, int) or bound == 0:
        return bound
    axis, local = (x.axes or ())[dim], scope.local(x)
    seen, here = 0, 0
    whole = Cuts(local.mesh, {})
    for segment in axis.segments:
        size, part = whole.product(segment), local.product(segment)
        if not isinstance(size, int) or not isinstance(part, int):
            return bound
        if bound <= seen + size:
            inside = bound - seen
            if inside * part % size:
                raise ValueError(f"an offset of {bound} is not on a boundary of what a rank has of {axis}")
            return here + inside * part // size
        seen, here = seen + size, here + part
    return bound


def select(node: Node, scope: Scope) -> Text:
    (x,) = node.operands
    dim = node.attrs["dim"]
    return Text(f"{scope.operand(x).inside(ATOM)}[{', '.join([':'] * dim + [number(node.attrs['index'])])}]")


def parts(node: Node, scope: Scope) -> Text:
    """One part of a cut dimension, written on its own."""
    return Text(f"{cut_all(node, scope)}[{node.attrs['index']}]")


def cut_all(node: Node, scope: Scope) -> str:
    """All parts of a cut dimension."""
    (x,) = node.operands
    dim = _behind(node.attrs["dim"], x.rank)
    text = scope.operand(x).inside(ATOM)
    if node.op == "piece":
        return f"{text}.chunk({node.attrs['count']}, dim={dim})"
    axis, local = (x.axes or ())[node.attrs["dim"]], scope.local(x)
    if len(axis.segments) == len(node.attrs["sizes"]):
        sizes = [local.product(s) for s in axis.segments]
    else:
        edges = [0, *(sum(node.attrs["sizes"][: i + 1]) for i in range(len(node.attrs["sizes"])))]
        at = [_bound(e, x, node.attrs["dim"], scope) for e in edges]
        sizes = [b - a for a, b in zip(at, at[1:], strict=False)]
    return f"{text}.split(({', '.join(map(str, sizes))}), dim={dim})"


def join(name: str) -> Writer:
    def writer(node: Node, scope: Scope) -> Text:
        args = ", ".join(arg(node, i, scope).text for i in range(len(node.args)))
        return Text(f"torch.{name}(({args}), dim={_behind(node.attrs['dim'], node.rank)})")

    return writer


def pad(node: Node, scope: Scope) -> Text:
    value = node.attrs["value"]
    if not node.dtype.startswith(("float", "bfloat")) and float(value).is_integer():
        value = int(value)
    return Text(f"F.pad({arg(node, 0, scope).text}, {node.attrs['widths']}, value={number(value)})")


def arange(node: Node, scope: Scope) -> Text:
    start, stop, step = (node.attrs[k] for k in ("start", "stop", "step"))
    bounds = [scope.size(stop, of=node)]
    if start != 0 or step != 1:
        bounds.insert(0, scope.size(start, of=node))
    if step != 1:
        bounds.append(scope.size(step, of=node))
    dtype = "" if node.dtype == "int64" else f", dtype=torch.{node.dtype}"
    return Text(f"torch.arange({', '.join(bounds)}{dtype}, device={scope.device()})")


def full(node: Node, scope: Scope) -> Text:
    sizes = [scope.size(s, of=node) for s in node.shape]
    shape = f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"
    value = bool(node.attrs["value"]) if node.dtype == "bool" else node.attrs["value"]
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


def along(name: str) -> Writer:
    def writer(node: Node, scope: Scope) -> Text:
        return Text(f"{arg(node, 0, scope).inside(ATOM)}.{name}({_behind(node.attrs['dim'], node.rank)})")

    return writer


def triangle(node: Node, scope: Scope) -> Text:
    diagonal = str(node.attrs["diagonal"]) if node.attrs["diagonal"] else ""
    return Text(f"{arg(node, 0, scope).inside(ATOM)}.{node.op}({diagonal})")


def repeat_interleave(node: Node, scope: Scope) -> Text:
    local = scope.local(node)
    last = (node.axes or ())[node.attrs["dim"]].factors[-1]
    x = arg(node, 0, scope).inside(ATOM)
    return Text(f"{x}.repeat_interleave({local.size(last)}, dim={_behind(node.attrs['dim'], node.rank)})")


def transition(node: Node, scope: Scope) -> Text:
    """A collective, or the local op that stands for it; the dimension and blocks come from the factor's place."""
    (x,) = node.operands
    name, axis = scope.need(node.op), scope.axis((node.attrs["axis"],))
    text = scope.operand(x)
    have, want = node.attrs["from"], (node.state or {})[node.attrs["axis"]]
    if node.op == "all_to_all":
        return _all_to_all(node, x, scope, name, axis)
    factor: int | None = getattr(have, "factor", getattr(want, "factor", None))
    if factor is None:
        return Text(f"{name}({text.text}, {axis})")
    before, after = scope.local(x), scope.local(node)
    dim = next(i for i, a in enumerate(x.axes or ()) if any(f.id == factor for f in a.factors))
    cut = before if hasattr(have, "factor") else after
    count = blocks((x.axes or ())[dim], factor, cut)
    where = f"dim={dim}" + (f", blocks={_count(count, node, scope)}" if count != 1 else "")
    whole = next(f for f in (x.axes or ())[dim].factors if f.id == factor)
    parts = cut.parts(whole)
    if not isinstance(whole.size, int) or whole.size % parts == 0:
        return Text(f"{name}({text.text}, {axis}, {where})")
    return _padded(f"{name}({{}}, {axis}, {where})", text, x.rank, dim, (whole.size, before.parts(whole), after.parts(whole)))


def _padded(call: str, x: Text, rank: int, dim: int, sizes: tuple[int, int, int]) -> Text:
    """A cut of a dimension that does not divide is padded before, and what is whole again loses its padding."""
    size, before, after = sizes
    if before == 1:
        return Text(call.format(f"F.pad({x.text}, {_widths(rank, dim, size, after)})"))
    return Text(call.format(x.text) + (f".narrow({dim}, 0, {size})" if after == 1 else ""))


def _count(count: Size | tuple[Size, ...], node: Node, scope: Scope) -> str:
    if isinstance(count, tuple):
        return f"({', '.join(scope.size(c, of=node) for c in count)})"
    return scope.size(count, of=node)


def _all_to_all(node: Node, x: Node, scope: Scope, name: str, axis: str) -> Text:
    have, want = node.attrs["from"], (node.state or {})[node.attrs["axis"]]
    text, options, behind = scope.operand(x).text, [""], ""
    before, after = scope.local(x), scope.local(node)
    for word, state, local in (("split", want, after), ("concat", have, before)):
        dim = next(i for i, a in enumerate(x.axes or ()) if any(f.id == state.factor for f in a.factors))
        whole = next(f for f in (x.axes or ())[dim].factors if f.id == state.factor)
        count = blocks((x.axes or ())[dim], state.factor, local)
        options.append(f"{word}_dim={dim}")
        options += [f"{word}_blocks={_count(count, node, scope)}"] if count != 1 else []
        if isinstance(whole.size, int) and whole.size % local.parts(whole):
            if word == "split":
                text = f"F.pad({text}, {_widths(x.rank, dim, whole.size, local.parts(whole))})"
            else:
                behind = f".narrow({dim}, 0, {whole.size})"
    return Text(f"{name}({text}, {axis}{', '.join(options)}){behind}")


def _widths(rank: int, dim: int, size: int, parts: int) -> tuple[int, ...]:
    """What F.pad has to add for a dimension to divide."""
    return (*(0, 0) * (rank - 1 - dim), 0, -(-size // parts) * parts - size)


def _behind(dim: int, rank: int) -> int:
    """The last dimension is written as -1."""
    return -1 if dim == rank - 1 else dim


def other(node: Node, scope: Scope) -> Text:
    """An op under its own name, called as the source called it."""
    args = [_given(a, node, scope) for a in node.attrs["call"]]
    args += [f"{k}={_given(v, node, scope)}" for k, v in node.attrs["words"].items() if k not in ("device", "pin_memory")]
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
    **{name: call(f"torch.{name}") for name in ("tanh", "sigmoid", "exp", "log", "log1p", "expm1", "erf", "maximum", "minimum", "where")},
    **{name: call(f"F.{name}") for name in ("relu", "silu")},
    **{name: method(name) for name in ("rsqrt", "sqrt", "reciprocal", "cos", "sin", "abs", "square", "isnan", "floor", "ceil", "round", "sign", "detach")},
    "gelu": lambda n, s: Text(
        f"F.gelu({arg(n, 0, s).text})" if n.attrs["approximate"] == "none" else f'F.gelu({arg(n, 0, s).text}, approximate="tanh")'
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
    **dict.fromkeys(["sum", "mean", "amax", "amin", "var"], reduce),
    "permute": permute,
    "reshape": reshaped,
    "unsqueeze": unsqueeze,
    "expand": expand,
    "slice": slice_,
    "select": select,
    "piece": parts,
    "segment": parts,
    "cat": join("cat"),
    "stack": join("stack"),
    "pad": pad,
    "arange": arange,
    "full": full,
    "constant": constant,
    "clamp": clamp,
    "cumsum": along("cumsum"),
    "tril": triangle,
    "triu": triangle,
    "repeat_interleave": repeat_interleave,
    **dict.fromkeys(
        ["all_gather", "all_gather_same", "all_reduce", "all_reduce_max", "grad_all_reduce", "reduce_scatter", "slice_", "slice_partial", "all_to_all"],
        transition,
    ),
}
