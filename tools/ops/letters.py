"""Cases of the ops whose rule is one of letters: `graphpar.ops.rules.RULES`."""

from __future__ import annotations

from collections.abc import Mapping

from graphpar.ir.graph import Node
from tools.ops.case import Case, row

# What no case runs, and why.
LEFT_OUT = {
    "dropout": "draws random numbers: equal to one device's under `rng: exact` alone, which tests/runtime compares",
    "loop_enter": "carries a value into a body as it is",
    "loop_leave": "carries a value out of a body as it is",
    "indexed_linear": "is what is made of matrices picked by row, which tests/cases/test_case_experts.py tries",
    **dict.fromkeys(
        ["kept", "route", "dispatch", "expert_linear", "expert_bias", "combine"],
        "is one of the ops that a mixture of experts is made of, which tests/runtime/test_experts.py tries together",
    ),
}

_UNARY = {
    "x": "neg exp expm1 tanh sigmoid relu cos sin abs erf square floor ceil round sign detach",
    "x~": "isnan",
    "x+": "log log1p rsqrt sqrt reciprocal",
}
_TRUTH = frozenset({"isnan", "eq", "ne", "lt", "le", "gt", "ge"})


def _unary() -> list[Case]:
    found: list[Case] = []
    for operand, ops in _UNARY.items():
        for op in ops.split():
            dtype = "bool" if op in _TRUTH else "float32"
            found.append(row(op, f"torch.{op}(x)", f"x 4 6 {operand[1:]}", to=dtype))
    return found


def _comparisons() -> list[Case]:
    found: list[Case] = []
    for op, symbol in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        found.append(row(op, f"x {symbol} y", "x 4 1 6 #; y 8 6 #", to="bool"))
        found.append(row(op, f"x {symbol} 1.0", "x 4 6 #", "x", 1.0, to="bool"))
    return found


def _causal(leaves: Mapping[str, Node]) -> Node:
    """One of two values, by positions that nothing is fed into."""
    rows, columns = (Node("arange", (), {"start": 0, "stop": n, "step": 1}, (n,), "int64") for n in (4, 6))
    mask = Node("le", (columns, Node("unsqueeze", (rows,), {"dim": 1}, (4, 1), "int64")), {}, (4, 6), "bool")
    return Node("where", (mask, leaves["x"], leaves["y"]), {}, (8, 4, 6), "float32")


def _positions(leaves: Mapping[str, Node]) -> Node:
    """The first rows of a table, looked up by number."""
    position = Node("arange", (), {"start": 0, "stop": 4, "step": 1}, (4,), "int64")
    return Node("embedding", (leaves["w"], position), {}, (4, 6), "float32")


ELEMENTWISE = [
    *_unary(),
    *_comparisons(),
    row("add", "x + y", "x 4 8 6; y 4 8 6"),
    row("add", "x + y", "x 4 1 6; y 8 6"),
    row("add", "x + 2.0", "x 4 6", "x", 2.0),
    row("add", "x + x", "x 4 6", "x", "x"),
    row("add", "x + y", "x (2 4) 6; y (2 4) 6"),
    row("sub", "x - y", "x 4 6; y 6"),
    row("sub", "x - 2.0", "x 4 6", "x", 2.0),
    row("sub", "1.0 - x", "x 4 6", 1.0, "x"),
    row("mul", "x * y", "x 4 6; y 4 6"),
    row("mul", "x * y", "x 4 8 6; y 8 1"),
    row("mul", "x * 3.0", "x 4 6", "x", 3.0),
    row("mul", "x * x", "x 4 6", "x", "x"),
    row("div", "x / y", "x 4 6; y 6 +"),
    row("div", "x / 4.0", "x 4 6", "x", 4.0),
    row("div", "2.0 / x", "x 4 6 +", 2.0, "x"),
    row("div", "torch.div(x, 0.5, rounding_mode='floor')", "x 4 6", "x", 0.5, rounding="floor"),
    row("div", "torch.div(x, 0.5, rounding_mode='trunc')", "x 4 6", "x", 0.5, rounding="trunc"),
    row("pow", "x ** 3.0", "x 4 6", "x", 3.0),
    row("pow", "2.0 ** x", "x 4 6", 2.0, "x"),
    row("pow", "x ** y", "x 4 6 +; y 6"),
    row("gelu", "F.gelu(x)", "x 4 6", approximate="none"),
    row("gelu", "F.gelu(x, approximate='tanh')", "x 4 6", approximate="tanh"),
    row("silu", "F.silu(x)", "x 4 6"),
    row("softplus", "F.softplus(x, 2, 20)", "x 4 6", beta=2, threshold=20),
    row("logical_not", "~m", "m 4 6 ?", to="bool"),
    row("and", "m & n", "m 4 6 ?; n 6 ?", to="bool"),
    row("or", "m | n", "m 4 1 ?; n 6 ?", to="bool"),
    row("where", "torch.where(m, x, y)", "m 4 6 ?; x 4 6; y 6"),
    row("where", "torch.where(m, x, 0.5)", "m 8 1 ?; x 4 8 6", "m", "x", 0.5),
    row("where", "torch.where(torch.arange(6) <= torch.arange(4).unsqueeze(1), x, y)", "x 8 4 6; y 6", build=_causal),
    row("where", "x.masked_fill(m, -2.0)", "m 8 6 ?; x 4 8 6", "m", -2.0, "x"),
    row("maximum", "torch.maximum(x, y)", "x 4 6; y 6"),
    row("minimum", "torch.minimum(x, y)", "x 4 6; y 4 1"),
    row("clamp", "x.clamp(-0.5, 0.7)", "x 4 6", "x", low=-0.5, high=0.7),
    row("clamp", "x.clamp(min=0.1)", "x 4 6", "x", low=0.1, high=None),
    row("cast", "x.double()", "x 4 6", to="float64"),
    row("cast", "x.long()", "x 4 6", to="int64"),
    row("cast", "m.double()", "m 4 6 ?", to="float64"),
    row("upcast", "x", "x 4 6"),
]

CONTRACTIONS = [
    row("linear", "F.linear(x, w)", "x 4 8 6; w 10 6", "x", "w", None),
    row("linear", "F.linear(x, w, b)", "x 4 6; w 8 6; b 8"),
    row("linear", "x @ w", "x 4 6; w 6 8", "x", "w", None, transposed=True),
    row("linear", "F.linear(x, w.T, b)", "x 4 6; w 6 8; b 8", transposed=True),
    row("linear", "F.linear(x, w, b)", "x 4 (2 6); w (2 4) (2 6); b (2 4)"),
    row("matmul", "x @ y", "x 4 6; y 6 8"),
    row("matmul", "x @ y", "x 2 4 8 6; y 4 6 10"),
    row("matmul", "x @ y", "x 4 1 8 6; y 2 6 10"),
    row("matmul", "x @ y", "x 4 6; y 6"),
    row("matmul", "x @ y", "x 6; y 4 6 8"),
    row("matmul", "x @ y", "x 6; y 6"),
    row("einsum", "torch.einsum('bhqd,bhkd->bhqk', x, y)", "x 2 4 6 8; y 2 4 10 8", equation="bhqd,bhkd->bhqk"),
    row("einsum", "torch.einsum('ij,kj->ki', x, y)", "x 4 6; y 8 6", equation="ij,kj->ki"),
    row("einsum", "torch.einsum('i,j->ij', x, y)", "x 4; y 6", equation="i,j->ij"),
    row("einsum", "torch.einsum('bij->bj', x)", "x 4 6 8", equation="bij->bj"),
    row("einsum", "torch.einsum('bi,ij,bj->b', x, w, y)", "x 4 6; w 6 8; y 4 8", equation="bi,ij,bj->b"),
]

_LOSS = "logits.movedim(-1, 1), labels"
LOOKUPS = [
    row("embedding", "F.embedding(ids, w)", "w 8 6; ids 4 10 < 8"),
    row("embedding", "F.embedding(ids, w, padding_idx=5)", "w 8 6; ids 4 < 8", padding=5),
    row("embedding", "F.embedding(ids, w)", "w 9 6; ids 4 < 9"),
    row("embedding", "F.embedding(ids, w)", "w (2 4) 6; ids 4 10 < 8"),
    row("embedding", "F.embedding(torch.arange(4), w)", "w 8 6", build=_positions),
    *(
        row(
            "cross_entropy",
            f"F.cross_entropy({_LOSS}, reduction={how!r}, ignore_index={ignore}, label_smoothing={smooth})",
            f"logits {shape}; labels {tokens} < {int(shape.split()[-1].rstrip(')'))}",
            reduction=how,
            ignore=ignore,
            smoothing=smooth,
        )
        for how, ignore, smooth, shape, tokens in (
            ("none", -100, 0.0, "4 6 8", "4 6"),
            ("none", 3, 0.0, "4 8", "4"),
            ("sum", -100, 0.0, "4 8", "4"),
            ("sum", 2, 0.1, "4 6 9", "4 6"),
            ("mean", 3, 0.0, "4 6 8", "4 6"),
            ("mean", -100, 0.2, "4 9", "4"),
        )
    ),
    row(
        "cross_entropy",
        f"F.cross_entropy({_LOSS}, reduction='sum')",
        "logits 4 (2 4); labels 4 < 8",
        reduction="sum",
        ignore=-100,
        smoothing=0.0,
    ),
]

REDUCTIONS = [
    row("sum", "x.sum(1)", "x 4 6 8", dims=(1,), keep=False),
    row("sum", "x.sum((0, 2), keepdim=True)", "x 4 6 8", dims=(0, 2), keep=True),
    row("sum", "x.sum()", "x 4 6", dims=(0, 1), keep=False),
    row("sum", "x.sum(1)", "x 4 (2 6)", dims=(1,), keep=False),
    row("sum", "m.sum(1)", "m 4 6 ?", dims=(1,), keep=False, to="int64"),
    row("mean", "x.mean(1)", "x 4 6 8", dims=(1,), keep=False),
    row("mean", "x.mean(-1, keepdim=True)", "x 4 6", dims=(1,), keep=True),
    row("mean", "x.mean()", "x 4 6", dims=(0, 1), keep=False),
    row("mean", "x.mean((0, 1))", "x 4 (2 6) 8", dims=(0, 1), keep=False),
    row("var", "x.var(1)", "x 4 6", dims=(1,), keep=False, correction=1),
    row("var", "x.var((0, 2), keepdim=True, correction=0)", "x 4 6 8", dims=(0, 2), keep=True, correction=0),
    row("amax", "x.amax(1)", "x 4 6", dims=(1,), keep=False),
    row("amax", "x.amax((0, 1), keepdim=True)", "x 4 6 8", dims=(0, 1), keep=True),
    row("amin", "x.amin(-1, keepdim=True)", "x 4 6", dims=(1,), keep=True),
    row("argmax", "x.argmax(1)", "x 4 6 8", dims=(1,), keep=False, to="int64"),
    row("argmin", "x.argmin(-1, keepdim=True)", "x 4 6", dims=(1,), keep=True, to="int64"),
]

ALONG = [
    row("softmax", "x.softmax(-1)", "x 4 6 8", dim=2),
    row("softmax", "x.softmax(0)", "x 4 6", dim=0),
    row("softmax", "x.softmax(-1)", "x 4 (2 6)", dim=1),
    row("log_softmax", "x.log_softmax(-1)", "x 4 6", dim=1),
    row("log_softmax", "x.log_softmax(0)", "x 4 6", dim=0),
    row("cumsum", "x.cumsum(1)", "x 4 6", dim=1),
    row("cumsum", "x.cumsum(0)", "x 4 6", dim=0),
    row("layer_norm", "F.layer_norm(x, (6,), w, b, 1e-05)", "x 4 8 6; w 6; b 6", dims=1, eps=1e-5),
    row("layer_norm", "F.layer_norm(x, (6,), w, None, 1e-05)", "x 4 6; w 6", "x", "w", None, dims=1, eps=1e-5),
    row("layer_norm", "F.layer_norm(x, (6,))", "x 4 6", "x", None, None, dims=1, eps=1e-5),
    row("layer_norm", "F.layer_norm(x, (12,), w, b)", "x 4 (2 6); w (2 6); b (2 6)", dims=1, eps=1e-5),
    row("layer_norm", "F.layer_norm(x, (6, 8), w, b)", "x 4 6 8; w 6 8; b 6 8", dims=2, eps=1e-5),
    row("rms_norm", "F.rms_norm(x, (6,), w, 1e-06)", "x 4 8 6; w 6", dims=1, eps=1e-6),
    row("rms_norm", "F.rms_norm(x, (6,))", "x 4 6", "x", None, dims=1, eps=None),
    row("rms_norm", "F.rms_norm(x, (12,), w, 1e-06)", "x 4 (2 6); w (2 6)", dims=1, eps=1e-6),
    row("rms_norm", "F.rms_norm(x, (6, 8), w, 1e-06)", "x 4 6 8; w 6 8", dims=2, eps=1e-6),
    row("select", "x[:, 2]", "x 4 6 8", dim=1, index=2),
    row("select", "x[1]", "x 4 6", dim=0, index=1),
    row("of_rows", "x[torch.arange(x.shape[0]), at]", "x 4 6 8; at 4 < 6"),
    row("of_rows", "x[torch.arange(x.shape[0]), at]", "x 4 6; at 4 < 6"),
    row("tril", "x.tril()", "x 4 6 8", diagonal=0),
    row("tril", "x.tril(-1)", "x 8 6", diagonal=-1),
    row("triu", "x.triu(1)", "x 4 6", diagonal=1),
    row("triu", "x.triu(-2)", "x 8 4 6", diagonal=-2),
]

# A vocabulary of nine is padded to ten where that spoils nothing.
UNEVEN = [
    row("exp", "torch.exp(x)", "x 4 9"),
    row("eq", "x == 1.0", "x 4 9 #", "x", 1.0, to="bool"),
    row("add", "x + y", "x 4 9; y 9"),
    row("linear", "F.linear(x, w, b)", "x 4 6; w 9 6; b 9"),
    row("linear", "F.linear(x, w)", "x 4 9; w 6 9", "x", "w", None),
    row("matmul", "x @ y", "x 4 9; y 9 6"),
    row("einsum", "torch.einsum('ij,kj->ki', x, y)", "x 4 9; y 8 9", equation="ij,kj->ki"),
    row("sum", "x.sum(1)", "x 4 9", dims=(1,), keep=False),
    row("sum", "m.sum(1)", "m 4 9 ?", dims=(1,), keep=False, to="int64"),
    row("mean", "x.mean(1)", "x 4 9", dims=(1,), keep=False),
    row("softmax", "x.softmax(-1)", "x 4 9", dim=1),
    row("log_softmax", "x.log_softmax(-1)", "x 4 9", dim=1),
    row("layer_norm", "F.layer_norm(x, (9,))", "x 4 9", "x", None, None, dims=1, eps=1e-5),
    row("permute", "x.T", "x 4 9", order=(1, 0)),
]

ORDER = [
    row("permute", "x.transpose(0, 1)", "x 4 6", order=(1, 0)),
    row("permute", "x.permute(2, 0, 1)", "x 4 6 8", order=(2, 0, 1)),
    row("permute", "x.permute(0, 2, 1, 3)", "x 2 4 (2 6) 8", order=(0, 2, 1, 3)),
    row("unsqueeze", "x.unsqueeze(1)", "x 4 6", dim=1),
    row("unsqueeze", "x.unsqueeze(-1)", "x 4 6", dim=2),
    row("stack", "torch.stack((x, y), dim=1)", "x 4 6; y 4 6", dim=1),
    row("stack", "torch.stack((x, x, y), dim=-1)", "x 4 6; y 4 6", "x", "x", "y", dim=2),
]

CASES = [*ELEMENTWISE, *CONTRACTIONS, *LOOKUPS, *REDUCTIONS, *ALONG, *ORDER, *UNEVEN]
