"""Operations that sum over a dimension of their operands, or normalise along one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphpar.check.dims import ONE, Dim, Wrong, agree, cut_by, cut_by_any, length, spell
from graphpar.check.pointwise import check_stream
from graphpar.check.rules import Stream, rule
from graphpar.check.value import Value, check_apart, elementwise, meet, together


def contract(terms: Sequence[str], result: str, values: Sequence[Value]) -> Value:
    """A sum of products: one letter per dimension, as in einsum."""
    lie: dict[str, list[Dim]] = {}
    for term, value in zip(terms, values, strict=True):
        for letter, dim in zip(term, value.dims, strict=True):
            lie.setdefault(letter, []).append(dim)
    found = {letter: together(dims, values) for letter, dims in lie.items()}
    check_apart(found.values())
    summed = cut_by_any(dim for letter, dim in found.items() if letter not in result)
    return meet(values, [found[letter] for letter in result], "multiply", summed)


@rule("torch.einsum")
def einsum(equation: str, *values: Value) -> Value:
    """Einstein's sum."""
    left, _, right = equation.replace(" ", "").partition("->")
    if "." in left:
        raise Wrong("an ellipsis in an einsum is not followed")
    return contract(left.split(","), right, values)


@rule("matmul", "torch.matmul", "torch.bmm", ".matmul", ".bmm", "torch.mm")
def matmul(x: Value, y: Value) -> Value:
    """The last dimension of x with the last but one of y."""
    letters = "abcdefgh"
    if len(x.dims) < 2 or len(y.dims) < 2:
        raise Wrong(f"a product of {x} and {y} is not followed")
    batch = letters[: max(len(x.dims), len(y.dims)) - 2]
    left = batch[len(batch) - len(x.dims) + 2 :] + "mk"
    right = batch[len(batch) - len(y.dims) + 2 :] + "kn"
    return contract([left, right], batch + "mn", [x, y])


@rule("F.linear")
def linear(x: Value, weight: Value, bias: Value | None = None) -> Value:
    """x [.., in], weight [out, in], bias [out] -> [.., out]."""
    letters = "abcdefgh"[: len(x.dims) - 1]
    y = contract([f"{letters}i", "oi"], f"{letters}o", [x, weight])
    return y if bias is None else elementwise([y, bias], "add")


def reduced(x: Value, dims: Any, keepdim: bool) -> tuple[list[int], list[Dim]]:
    """The dimensions that go, and those that are left."""
    numbers = range(len(x.dims)) if dims is None else dims if isinstance(dims, (tuple, list)) else (dims,)
    gone = [x.at(n) for n in numbers]
    left = [ONE if i in gone else dim for i, dim in enumerate(x.dims) if keepdim or i not in gone]
    return gone, left


@rule(".sum", "torch.sum")
def total(x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """The sum: where it is over a dimension that is cut, the ranks' sums are still to be summed."""
    gone, left = reduced(x, dim, keepdim)
    return meet([x], left, "add", cut_by_any(x.dims[i] for i in gone))


@rule(".mean", "torch.mean")
def mean(x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """A linear function of all elements along dimensions, which nothing may cut."""
    return meet([x], _all_elements(x, dim, keepdim), "add")


@rule(".amax", ".amin", ".var", ".std", ".prod", ".logsumexp", ".all", ".any", ".norm")
def statistic(x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """Another function of them."""
    return meet([x], _all_elements(x, dim, keepdim), "other")


@rule(".argmax", ".argmin")
def position(x: Value, dim: Any = None, keepdim: bool = False, **_: Any) -> Value:
    """Where along dimensions an element is, which has no gradient."""
    return replace(statistic(x, dim, keepdim), grad=False)


def _all_elements(x: Value, dim: Any, keepdim: bool) -> list[Dim]:
    """The dimensions that are left of a function of all elements along others."""
    gone, left = reduced(x, dim, keepdim)
    for i in gone:
        check_whole(x, i, "a function of all of its elements")
    return left


def check_whole(x: Value, dim: int, why: str) -> None:
    """Raise Wrong if a dimension is cut."""
    if axes := cut_by(x.dims[dim]):
        raise Wrong(f"{spell(x.dims[dim])} of {x} is cut over {' '.join(sorted(axes))}, but {why} is taken of it")


@rule(".softmax", "F.softmax", "torch.softmax", ".log_softmax", "F.log_softmax", ".cumsum", "torch.cumsum")
def along(x: Value, dim: int, **_: Any) -> Value:
    """A function along a dimension, which nothing may cut."""
    check_whole(x, x.at(dim), "a function of all of its elements")
    return elementwise([x], "other")


@rule("F.layer_norm", "F.rms_norm")
def norm(x: Value, shape: tuple[int, ...], weight: Value | None = None, *rest: object, **_: Any) -> Value:
    """Statistics over the last dimensions, then a weight and a bias."""
    for i in range(len(x.dims) - len(shape), len(x.dims)):
        check_whole(x, i, "a statistic")
        if length(x.dims[i]) != shape[i - len(x.dims)]:
            raise Wrong(f"{x} is normalised over {shape}")
    y = elementwise([x], "other")
    y = y if weight is None else elementwise([y, weight], "multiply")
    bias = rest[0] if rest and isinstance(rest[0], Value) else None
    return y if bias is None else elementwise([y, bias], "add")


@rule("F.normalize")
def normalize(x: Value, dim: int = 1, **_: Any) -> Value:
    """Divided by its norm along a dimension."""
    check_whole(x, x.at(dim), "a norm")
    return elementwise([x], "other")


@rule("F.scaled_dot_product_attention")
def attend(
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    **_: Any,
) -> Value:
    """q [.., s, d], k [.., t, d], v [.., t, e] -> [.., s, e]; every query sees all keys, or those up to its own."""
    t, s = k.dims[-2], q.dims[-2]
    if cut_by(t):
        raise Wrong(
            f"the keys {k} are cut over {' '.join(sorted(cut_by(t)))}: a query would see those of its own rank only"
        )
    if is_causal and agree(s, t) is None:
        raise Wrong(f"the queries {q} are not those of the keys {k}: which of them come first is unknown")
    keys = together([t, v.dims[-2]], [k, v])
    batch = [_heads(q, k, v, i, shared=enable_gqa) for i in range(-len(q.dims), -2)]
    for value in (q, k):
        check_whole(value, len(value.dims) - 1, "a product of all of it")
    values = [q, k, v]
    if attn_mask is not None:
        elementwise([Value((*batch, s, keys)), attn_mask], "add")
        values.append(attn_mask)
    return meet(values, (*batch, s, v.dims[-1]), "other")


def _heads(q: Value, k: Value, v: Value, dim: int, *, shared: bool) -> Dim:
    own, other = q.dims[dim], together([k.dims[dim], v.dims[dim]], [k, v])
    if shared and cut_by(own) == cut_by(other) and length(own) % length(other) == 0:
        return own
    return together([own, other], [q, k, v])


@rule("attention")
def attention(q: Value, k: Value, v: Value, stream: Stream, **how: Any) -> Value:
    """Attention with dropout: the probabilities lie as the result does."""
    y: Value = attend(
        q, k, v, **{word: given for word, given in how.items() if word not in ("dropout_p", "training", "cut")}
    )
    check_stream(y, stream)
    return y


@rule("F.embedding")
def embedding(ids: Value, weight: Value, *_: Any, **__: Any) -> Value:
    """Rows of a table that is whole."""
    check_whole(weight, 0, "every row")
    return meet([ids, weight], (*ids.dims, *weight.dims[1:]), "other")


@rule(".index_select", "torch.index_select")
def index_select(x: Value, dim: int, index: Value) -> Value:
    """Elements of a dimension by number."""
    at = x.at(dim)
    check_whole(x, at, "any element")
    return meet([x, index], (*x.dims[:at], *index.dims, *x.dims[at + 1 :]), "other")


@rule("F.cross_entropy", "F.nll_loss")
def cross_entropy(logits: Value, labels: Value, *, reduction: str = "mean", **_: Any) -> Value:
    """logits [tokens, vocab, ..], labels [tokens, ..]."""
    check_whole(logits, logits.at(1), "a loss")
    tokens = logits.shaped((logits.dims[0], *logits.dims[2:], logits.dims[1]))
    return token_loss(tokens, labels, reduction)


def token_loss(logits: Value, labels: Value, reduction: str) -> Value:
    """The loss of each token, or their sum or mean."""
    if len(logits.dims) != len(labels.dims) + 1:
        raise Wrong(f"{logits} and labels {labels} have not the same tokens")
    dims = [together([a, b], [logits, labels]) for a, b in zip(logits.dims, labels.dims, strict=False)]
    losses = meet([logits, labels], dims, "other")
    if reduction == "none":
        return losses
    if reduction == "mean" and losses.cut:
        raise Wrong(f"a mean over the tokens of one rank, of {losses}, is not the mean over all")
    return meet([losses], (), "add", losses.cut)
