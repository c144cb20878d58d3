"""Cases of the ops whose rule depends on sizes and arguments: `graphpar.ops.shapes.SHAPES`."""

from __future__ import annotations

from collections.abc import Mapping

from graphpar.ir.graph import Node
from tools.ops.case import Case, row


def _sdpa(operands: str, *args: object, **options: object) -> Case:
    names = [str(a) if isinstance(a, str) else None for a in args]
    words = f", attn_mask={names[3]}" if names[3] else ""
    words += "".join(f", {w}={v}" for w, v in options.items())
    call = f"F.scaled_dot_product_attention({', '.join(map(str, names[:3]))}{words})"
    causal, gqa = options.get("is_causal", False), options.get("enable_gqa", False)
    return row("sdpa", call, operands, *args, dropout=0.0, causal=causal, scale=options.get("scale"), gqa=gqa)


def _packed(leaves: Mapping[str, Node]) -> Node:
    """The second of two unequal parts that are joined from blocks of one width: (4 d + 2 d)."""
    x, y = leaves["x"], leaves["y"]
    joined = Node("cat", (x, y), {"dim": 1}, (4, 12), "float32")
    return Node("segment", (joined,), {"dim": 1, "sizes": (8, 4), "index": 1}, (4, 4), "float32")


RESHAPES = [
    row("reshape", "x.reshape(sizes)", "x 4 6", shape=(24,)),
    row("reshape", "x.reshape(sizes)", "x 24", shape=(4, 6)),
    row("reshape", "x.reshape(sizes)", "x 4 12 8", shape=(4, 2, 6, 8)),
    row("reshape", "x.reshape(sizes)", "x 4 6 8", shape=(4, 48)),
    row("reshape", "x.reshape(sizes)", "x 6 4", shape=(4, 6)),
    row("reshape", "x.reshape(sizes)", "x 8 6", shape=(4, 12)),
    row("reshape", "x.reshape(sizes)", "x 4 1 6", shape=(4, 6)),
    row("reshape", "x.reshape(sizes)", "x 4 (3 8)", shape=(4, 3, 2, 4)),
    row("reshape", "x.reshape(sizes)", "x 4 24", shape=(2, 2, 8, 3)),
    row("expand", "x.expand(sizes)", "x 4 1 6", shape=(4, 8, 6)),
    row("expand", "x.expand(sizes)", "x 6", shape=(4, 6)),
    row("expand", "x.expand(sizes)", "x 4 1", shape=(2, 4, 8)),
]

PARTS = [
    row("slice", "x[:, 2:6]", "x 4 8", dim=1, start=2, stop=6, step=1),
    row("slice", "x[:, 4:]", "x 4 8 6", dim=1, start=4, stop=8, step=1),
    row("slice", "x[:2]", "x 4 6", dim=0, start=0, stop=2, step=1),
    row("slice", "x[:, ::2]", "x 4 8", dim=1, start=0, stop=8, step=2),
    row("slice", "x[:, 1::2]", "x 4 8", dim=1, start=1, stop=8, step=2),
    row("slice", "x[:, 1::2]", "x 4 (6 2)", dim=1, start=1, stop=12, step=2),
    row("slice", "x[:, 6:12]", "x 4 (3 6)", dim=1, start=6, stop=12, step=1),
    row("slice", "x[:, 8:]", "x 4 (6 4)", dim=1, start=8, stop=24, step=1),
    row("slice", "x[:, 5:9]", "x 4 (6 4)", dim=1, start=5, stop=9, step=1),
    row("slice", "x[:, 0:4:2]", "x 4 8", dim=1, start=0, stop=4, step=2),
    row("slice", "x[:, 1:9:2]", "x 4 (6 2)", dim=1, start=1, stop=9, step=2),
    row("slice", "x[:, ::4]", "x 4 (2 4)", dim=1, start=0, stop=8, step=4),
    row("slice", "x[:, 1:6:3]", "x 4 8", dim=1, start=1, stop=6, step=3),
    row("piece", "x.chunk(3, dim=1)[1]", "x 4 12", dim=1, count=3, index=1),
    row("piece", "x.chunk(2, dim=-1)[0]", "x 4 6 8", dim=2, count=2, index=0),
    row("piece", "x.chunk(3, dim=1)[2]", "x 4 (3 8)", dim=1, count=3, index=2),
    row("piece", "x.chunk(2, dim=1)[1]", "x 4 (4 6)", dim=1, count=2, index=1),
    row("piece", "x.chunk(4, dim=0)[1]", "x 4 6", dim=0, count=4, index=1),
    row("segment", "x.split((8, 4), dim=1)[0]", "x 6 12", dim=1, sizes=(8, 4), index=0),
    row("segment", "x.split((8, 4), dim=1)[1]", "x 6 12", dim=1, sizes=(8, 4), index=1),
    row("segment", "x.split((8, 4), dim=1)[1]", "x 6 (3 4)", dim=1, sizes=(8, 4), index=1),
    row("segment", "torch.cat((x, y), dim=1).split((8, 4), dim=1)[1]", "x 4 8; y 4 4", build=_packed),
]

JOINS = [
    row("cat", "torch.cat((x, y), dim=1)", "x 4 6; y 4 8", dim=1),
    row("cat", "torch.cat((x, x, x), dim=1)", "x 4 6", "x", "x", "x", dim=1),
    row("cat", "torch.cat((x, y), dim=0)", "x 4 (2 6); y 8 (2 6)", dim=0),
    row("cat", "torch.cat((x, y), dim=-1)", "x 4 6 (2 4); y 4 6 (2 4)", dim=2),
    row("pad", "F.pad(x, (2, 4), value=0)", "x 4 6", widths=(2, 4), value=0),
    row("pad", "F.pad(x, (0, 0, 1, 1), value=0.5)", "x 4 6 8", widths=(0, 0, 1, 1), value=0.5),
    row("pad", "F.pad(x, (0, 0, 1, -1), value=0)", "x 4 6 8", widths=(0, 0, 1, -1), value=0),
    row("repeat_interleave", "x.repeat_interleave(2, dim=1)", "x 4 6 8", repeats=2, dim=1),
    row("repeat_interleave", "x.repeat_interleave(4, dim=-1)", "x 4 (2 6)", repeats=4, dim=1),
]

ATTENTION = [
    _sdpa("x 2 4 6 8", "x", "x", "x", None, is_causal=True),
    _sdpa("x 2 4 6 8; m 6 6", "x", "x", "x", "m"),
    _sdpa("x 2 4 6 8; m 2 1 6 6 ?", "x", "x", "x", "m"),
    _sdpa("q 2 4 6 8; k 2 4 10 8; v 2 4 10 12; m 4 6 10", "q", "k", "v", "m", scale=0.5),
    _sdpa("q 2 8 6 4; k 2 4 6 4; v 2 4 6 4", "q", "k", "v", None, is_causal=True, enable_gqa=True),
    _sdpa("q 2 (4 2) 6 8; k 2 4 10 8; v 2 4 10 8; m 2 1 6 10 ?", "q", "k", "v", "m", enable_gqa=True),
    _sdpa("q 2 4 6 8; k 2 1 6 8; v 2 1 6 8", "q", "k", "v", None, enable_gqa=True),
    _sdpa("q 4 6 8; k 4 10 8; v 4 10 8", "q", "k", "v", None, is_causal=True),
]

UNEVEN = [
    row("reshape", "x.reshape(sizes)", "x 4 9", shape=(36,)),
    row("cat", "torch.cat((x, y), dim=1)", "x 4 9; y 4 9", dim=1),
    row("cat", "torch.cat((x, y), dim=0)", "x 4 9; y 8 9", dim=0),
    row("slice", "x[:, 2:]", "x 4 9", dim=1, start=2, stop=9, step=1),
    row("repeat_interleave", "x.repeat_interleave(2, dim=1)", "x 4 9", repeats=2, dim=1),
    row("stack", "torch.stack((x, y), dim=2)", "x 4 9; y 4 9", dim=2),
]

CASES = [*RESHAPES, *PARTS, *JOINS, *ATTENTION, *UNEVEN]
