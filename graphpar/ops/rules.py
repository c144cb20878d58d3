"""The op table: what each op does to axes. Names, placement and cost know no op but through it.

    n k, ... k -> ... n     operands, then result; one letter per axis
    ...                     any leading axes, broadcast from the right
    k!                      needed whole: if sharded, it is gathered before the op
    1                       an axis of size one
    ?                       not a tensor that matters for axes
    _  +                    a new axis: of numbers that mean nothing by themselves, or one that may get a name

A letter that does not return on the right, and is not marked, is summed away: shard it and every rank holds one
summand of the result, which is then partial.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase
from typing import TypeAlias

from graphpar.ir.graph import Node

Rule: TypeAlias = "str | Callable[[Node], str | None]"


def elementwise(node: Node) -> str:
    """Operands broadcast against each other."""
    return ", ".join("..." if isinstance(a, Node) else "?" for a in node.args) + " -> ..."


def along(node: Node) -> str:
    """One axis is needed whole; the shape stays."""
    axes = _letters(node.rank)
    marked = [f"{a}!" if i == node.attrs["dim"] else a for i, a in enumerate(axes)]
    return f"{' '.join(marked)} -> {' '.join(axes)}"


def reduce(mark: str) -> Callable[[Node], str]:
    """Axes taken away, or kept as size one. `mark` says whether they are needed whole."""

    def rule(node: Node) -> str:
        axes = _letters(node.operands[0].rank)
        dims = node.attrs["dims"]
        left = [a + mark if i in dims else a for i, a in enumerate(axes)]
        right = ["1" if i in dims else a for i, a in enumerate(axes) if node.attrs["keep"] or i not in dims]
        return f"{' '.join(left)} -> {' '.join(right)}"

    return rule


def permute(node: Node) -> str:
    """The same axes in another order."""
    axes = _letters(node.rank)
    return f"{' '.join(axes)} -> {' '.join(axes[d] for d in node.attrs['order'])}"


def unsqueeze(node: Node) -> str:
    """A new axis of size one."""
    axes = _letters(node.rank - 1)
    grown = list(axes)
    grown.insert(node.attrs["dim"], "1")
    return f"{' '.join(axes)} -> {' '.join(grown)}"


def select(node: Node) -> str:
    """One index of an axis that is needed whole."""
    axes = _letters(node.rank + 1)
    marked = [f"{a}!" if i == node.attrs["dim"] else a for i, a in enumerate(axes)]
    return f"{' '.join(marked)} -> {' '.join(a for i, a in enumerate(axes) if i != node.attrs['dim'])}"


def of_rows(node: Node) -> str:
    """One element of each row: the second axis is needed whole, and there is one index for each of the first."""
    row, *rest = _letters(node.rank)
    return f"{' '.join((row, '_!', *rest))}, {row} -> {' '.join((row, *rest))}"


def stack(node: Node) -> str:
    """Operands along a new axis."""
    axes = _letters(node.rank - 1)
    result = list(axes)
    result.insert(node.attrs["dim"], "_")
    return ", ".join(" ".join(axes) for _ in node.args) + f" -> {' '.join(result)}"


def normalise(node: Node) -> str:
    """The last axes are needed whole, and have a weight each."""
    axes = _letters(node.attrs["dims"])
    whole = " ".join(f"{a}!" for a in axes)
    left = [f"... {whole}"] + [whole if isinstance(a, Node) else "?" for a in node.args[1:]]
    return f"{', '.join(left)} -> ... {' '.join(axes)}"


def linear(node: Node) -> str:
    """x w^T + b, or x w + b for a weight stored as (in, out)."""
    weight = "k n" if node.attrs.get("transposed") else "n k"
    return f"... k, {weight}, {'n' if isinstance(node.args[2], Node) else '?'} -> ... n"


def matmul(node: Node) -> str:
    """The last axis of the first with the second-last of the second operand."""
    a, b = (arg.rank for arg in node.operands)
    if b == 1:
        return "... k, k -> ..."
    return "k, ... k n -> ... n" if a == 1 else "... m k, ... k n -> ... m n"


def kept(node: Node) -> str:
    """Tokens of a group compete, those of different groups do not."""
    axes = _letters(node.rank)
    marked = [a if i < node.attrs["groups"] else f"{a}!" for i, a in enumerate(axes)]
    return f"{' '.join(marked)} -> {' '.join(axes)}"


def indexed_linear(node: Node) -> str:
    """Each row with the matrix of its own index, picked from a stack."""
    return f"... k, e! {'k n' if node.attrs['transposed'] else 'n k'}, ... -> ... n"


def einsum(node: Node) -> str:
    """As its equation says."""
    left, _, right = node.attrs["equation"].partition("->")
    return ", ".join(" ".join(term) for term in left.split(",")) + f" -> {' '.join(right)}"


def cross_entropy(node: Node) -> str:
    """Classes last; one loss per target, or their sum."""
    count = ", ?" if len(node.args) > 2 else ""
    return f"... v, ...{count} -> {'...' if node.attrs['reduction'] == 'none' else ''}"


def triangle(node: Node) -> str:
    """Positions along the last two axes are compared."""
    return "... a! b! -> ... a b"


def topk(node: Node) -> str:
    """The chosen of one axis, which is needed whole, along a new one."""
    axes = list(_letters(node.rank))
    marked = _with(axes, node.attrs["dim"], axes[node.attrs["dim"]] + "!")
    return f"{' '.join(marked)} -> {' '.join(_with(axes, node.attrs['dim'], '+'))}"


def gather(node: Node) -> str:
    """One axis is needed whole; elements of it, by number, take its place."""
    axes, dim = list(_letters(node.rank)), node.attrs["dim"]
    index = _with(axes, dim, "z")
    return f"{' '.join(_with(axes, dim, axes[dim] + '!'))}, {' '.join(index)} -> {' '.join(index)}"


def scatter(node: Node) -> str:
    """Elements are put at numbers of one axis: it is needed whole, and so are all that are put."""
    axes, dim = list(_letters(node.rank)), node.attrs["dim"]
    put = " ".join(_with(axes, dim, "z!"))
    own = _with(axes, dim, axes[dim] + "!")
    return f"{' '.join(own)}, {put}, {put if isinstance(node.args[2], Node) else '?'} -> {' '.join(axes)}"


def index_add(node: Node) -> str:
    """As scatter, with one number for each slice."""
    axes, dim = list(_letters(node.rank)), node.attrs["dim"]
    own = _with(axes, dim, axes[dim] + "!")
    return f"{' '.join(own)}, z!, {' '.join(_with(axes, dim, 'z!'))} -> {' '.join(axes)}"


def index(node: Node) -> str | None:
    """Elements of one axis, which is needed whole, by numbers of any shape."""
    given = [i for i, a in enumerate(node.args[1:]) if isinstance(a, Node)]
    x, *indices = node.operands
    if len(given) != 1 or indices[0].dtype == "bool":
        return None
    axes, (dim,) = list(_letters(x.rank)), given
    numbers = " ".join(ascii_lowercase[::-1][: indices[0].rank])
    left = ["?"] * (len(node.args) - 1)
    own = " ".join(_with(axes, dim, axes[dim] + "!"))
    return f"{own}, {', '.join(_with(left, dim, numbers))} -> {' '.join(_with(axes, dim, numbers))}"


def count(node: Node) -> str:
    """How many of all elements there are of each kind: of a part, they are a summand."""
    return f"{' '.join(_letters(node.operands[0].rank))} -> +"


def _with(axes: list[str], dim: int, other: str) -> list[str]:
    return [*axes[:dim], other, *axes[dim + 1 :]]


def _letters(count: int) -> str:
    return ascii_lowercase[:count]


ELEMENTWISE = (
    "add sub mul div pow neg exp log log1p expm1 tanh sigmoid relu gelu silu softplus rsqrt sqrt reciprocal cos sin "
    "abs erf square logical_not isnan floor ceil round sign detach eq ne lt le gt ge and or where maximum minimum "
    "clamp remainder cast upcast dropout loop_enter loop_leave"
).split()

RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    # contractions
    "linear": linear,
    "matmul": matmul,
    "einsum": einsum,
    "indexed_linear": indexed_linear,
    "kept": kept,
    "grouped_matmul": "r! k, e! k n, e! -> r n",
    # lookups
    "embedding": "v d, ... -> ... d",
    "gather": gather,
    "index": index,
    "scatter": scatter,
    "index_add": index_add,
    "one_hot": "... -> ... +",
    "cross_entropy": cross_entropy,
    # reductions
    "sum": reduce(""),
    "mean": reduce(""),
    "var": reduce("!"),
    "amax": reduce("!"),
    "amin": reduce("!"),
    "argmax": reduce("!"),
    "argmin": reduce("!"),
    "max": reduce("!"),
    "min": reduce("!"),
    "any": reduce("!"),
    "all": reduce("!"),
    "logsumexp": reduce("!"),
    "histc": count,
    # one axis is needed whole
    "softmax": along,
    "log_softmax": along,
    "cumsum": along,
    "sort": along,
    "topk": topk,
    "layer_norm": normalise,
    "rms_norm": normalise,
    "select": select,
    "of_rows": of_rows,
    "tril": triangle,
    "triu": triangle,
    # shape only
    "permute": permute,
    "unsqueeze": unsqueeze,
    "stack": stack,
}

# Operands in which an op is linear, so that a pending sum may flow through: groups of argument positions. Within a
# group the op is linear in all of them together (a + b), across groups in each on its own (a b).
LINEAR: dict[str, tuple[tuple[int, ...], ...]] = {
    "add": ((0, 1),),
    "sub": ((0, 1),),
    "neg": ((0,),),
    "mul": ((0,), (1,)),
    "div": ((0,),),
    **dict.fromkeys(
        ["reshape", "permute", "unsqueeze", "expand", "slice", "piece", "segment", "select", "sum", "mean"], ((0,),)
    ),
}


def linear_in(node: Node) -> tuple[tuple[int, ...], ...]:
    """The groups of operands in which a call of an op is linear; a quotient that is rounded is not."""
    if node.op in ("cat", "stack"):
        return (tuple(range(len(node.args))),)
    return () if "rounding" in node.attrs else LINEAR.get(node.op, ())


def rule_of(node: Node, more: Mapping[str, str]) -> str | None:
    """The rule of an op that has one as text: ours, or one of `more`, under the op's full or short name."""
    rule = RULES.get(node.op) or more.get(node.op) or more.get(short(node.op))
    return rule(node) if callable(rule) else rule


def short(op: str) -> str:
    """`mylib::rope` for `mylib.rope.default`: how a spec names an op."""
    return "::".join(op.split(".")[:2])


def with_marks(rule: str) -> str:
    """A rule of the spec, `a b -> a b ; whole b`, in the notation of the table: `a b! -> a b`."""
    text, *attributes = (part.strip() for part in rule.split(";"))
    whole = {w for a in attributes if a.startswith("whole") for w in a.removeprefix("whole").replace(",", " ").split()}
    left, _, right = text.partition("->")
    marked = " ".join(_marked(word, whole) for word in left.replace(",", " , ").split())
    return f"{marked.replace(' ,', ',')} -> {right.strip()}"


def _marked(word: str, whole: set[str]) -> str:
    return f"{word}!" if word in whole else word
