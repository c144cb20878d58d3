"""Cases of the ops that choose, order, count or place elements by number."""

from __future__ import annotations

from collections.abc import Mapping

from graphpar.ir.graph import Node
from tools.ops.case import row


def _counts(ids: Node) -> Node:
    wide = Node("cast", (ids,), {"dtype": "float32"}, ids.shape, "float32")
    return Node("histc", (wide,), {"bins": 4, "low": 0, "high": 3}, (4,), "float32")


def _counted(leaves: Mapping[str, Node]) -> Node:
    """How often each number is given."""
    return _counts(leaves["ids"])


def _grouped(leaves: Mapping[str, Node]) -> Node:
    """Rows in the order of their groups, and where each group ends."""
    whole = Node("cast", (_counts(leaves["ids"]),), {"dtype": "int32"}, (4,), "int32")
    ends = Node("cumsum", (whole,), {"dim": 0}, (4,), "int32")
    return Node("grouped_matmul", (leaves["x"], leaves["w"], ends), {}, (8, 10), "float32")


_TOP = {"k": 2, "dim": 1, "largest": True, "sorted": True}
_SORT = {"dim": 1, "descending": False, "stable": False}
_LAST = {"dims": (1,), "keep": False}

CASES = [
    row("topk", "x.topk(2, dim=1)[0]", "x 4 6 8", **_TOP, part=0),
    row("topk", "x.topk(2, dim=1)[1]", "x 4 6 8", **_TOP, part=1, to="int64"),
    row("topk", "x.topk(4, largest=False)[0]", "x 4 (2 4)", **{**_TOP, "k": 4, "largest": False}, part=0),
    row("sort", "x.sort(1)[0]", "x 4 6 8", **_SORT, part=0),
    row("sort", "x.sort(1, descending=True)[1]", "x 4 6", **{**_SORT, "descending": True}, part=1, to="int64"),
    row("sort", "ids.sort(stable=True)[1]", "ids 4 8 < 3", **{**_SORT, "stable": True}, part=1, to="int64"),
    row("max", "x.max(1)[0]", "x 4 6 8", **_LAST, part=0),
    row("max", "x.max(1, keepdim=True)[1]", "x 4 6", dims=(1,), keep=True, part=1, to="int64"),
    row("min", "x.min(1)[0]", "x 4 6", **_LAST, part=0),
    row("any", "m.any(1)", "m 8 2 ?", **_LAST, to="bool"),
    row("all", "m.all(1, keepdim=True)", "m 8 2 ?", dims=(1,), keep=True, to="bool"),
    row("logsumexp", "x.logsumexp(1)", "x 4 6 8", **_LAST),
    row("logsumexp", "x.logsumexp(1, keepdim=True)", "x 4 6", dims=(1,), keep=True),
    row("gather", "x.gather(1, ids)", "x 4 6 8; ids 4 2 8 < 6", dim=1),
    row("gather", "x.gather(1, ids)", "x 4 6; ids 4 10 < 6", dim=1),
    row("scatter", "x.scatter(1, ids, y)", "x 4 6; ids 4 2 < 6; y 4 2", dim=1),
    row("scatter", "x.scatter(0, ids, 2.0)", "x 6 4; ids 2 4 < 6", "x", "ids", 2.0, dim=0),
    row("index_add", "x.index_add(1, ids, y)", "x 4 6 8; ids 10 < 6; y 4 10 8", dim=1),
    row("index", "x[ids]", "x 6; ids 4 10 < 6", "x", "ids"),
    row("index", "x[ids]", "x 6 4 8; ids 10 < 6", "x", "ids"),
    row("index", "x[:, ids]", "x 4 6; ids 2 10 < 6", "x", None, "ids"),
    row("one_hot", "F.one_hot(ids, 6)", "ids 4 8 < 6", classes=6, to="int64"),
    row("histc", "torch.histc(ids.double(), 4, 0, 3)", "ids 8 6 < 4", build=_counted),
    row("remainder", "x % 0.7", "x 4 6", "x", 0.7),
    row("remainder", "x % y", "x 4 6; y 6 +"),
    row(
        "grouped_matmul", "(x.unsqueeze(1) @ w[ids.sort()[0]]).squeeze(1)", "x 8 6; w 4 6 10; ids 8 < 4", build=_grouped
    ),
]
