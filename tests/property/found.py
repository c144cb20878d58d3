"""What the draws have found: the smallest model and layout of each mistake, and which draws would find it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from choices import Choices

from specs import Document


@dataclass(frozen=True)
class Found:
    """One failing draw. `reason` is None once it is mended; the draw then stays as a test.

    `like` says of any other draw whether it fails for the same reason: until that is mended, such draws are left out.
    """

    choices: Choices
    layout: Document
    reason: str | None
    like: Callable[[Choices, Document], bool]


def cuts(document: Document, *names: str) -> bool:
    """Whether a rule of a layout puts one of these dimensions on an axis."""
    return any(name in rule for rule in document["layout"] for name in names)


def layout(mesh: dict[str, int], *rules: str) -> Document:
    """`layout({"tp": 2}, "heads tp")`."""
    pairs = [rule.split() for rule in rules]
    return {"version": 1, "mesh": mesh, "layout": [{name: axis} for name, axis in pairs]}


def alternating(c: Choices) -> bool:
    """Whether the first and the third block are alike, and the second is another."""
    return c.layers == 3 and c.second != "alike"


FOUND: dict[str, Found] = {
    "a scale for each head": Found(
        Choices(about="head scale"),
        layout({"tp": 2}, "heads tp"),
        None,
        lambda c, spec: c.about == "head scale" and cuts(spec, "heads", "kv_heads"),
    ),
    "keys and values by view, one head on each rank": Found(
        Choices(heads=2, kv_heads=2, qkv="q and kv", split="unbind"),
        layout({"tp": 2}, "heads tp"),
        None,
        lambda c, spec: c.qkv == "q and kv" and c.split == "unbind" and cuts(spec, "heads", "kv_heads"),
    ),
    "positions made in blocks that alternate": Found(
        Choices(layers=3, positions="rotary halves", second="hidden"),
        layout({"d": 2}, "d_model d"),
        None,
        lambda c, spec: alternating(c) and c.positions.startswith(("rotary", "alibi")),
    ),
    "norms behind the parts of blocks that alternate": Found(
        Choices(layers=3, norms="post", second="hidden"),
        layout({"tp": 2}, "heads tp"),
        None,
        lambda c, spec: alternating(c) and c.norms == "post",
    ),
    "a block that runs three times, first on a sum that is pending": Found(
        Choices(layers=3, kv_heads=2, norms="post", positions="none", shared="layer"),
        layout({"tp": 2, "tq": 2}, "kv_heads tp", "q_group tq", "vocab tp"),
        None,
        lambda c, spec: c.shared == "layer" and cuts(spec, "vocab"),
    ),
    "one head of each rank, in groups of one": Found(
        Choices(heads=2, kv_heads=1, positions="alibi", repeat="broadcast", attention="by hand"),
        layout({"tp": 2}, "heads tp", "seq tp"),
        None,
        lambda c, spec: c.repeat == "broadcast" and c.positions == "alibi" and cuts(spec, "heads", "kv_heads"),
    ),
    "positions of masks in blocks that alternate": Found(
        Choices(layers=3, positions="rotary partial", attention="masked", second="window", final_norm=False),
        layout({"dp": 2, "fs": 2}, "batch dp", "seq fs"),
        None,
        lambda c, spec: alternating(c) and c.attention == "masked" and cuts(spec, "seq"),
    ),
    "what a stage only passes on": Found(
        Choices(layers=3, stream="first", head="matmul"),
        layout({"pp": 3}) | {"pipeline": {"axis": "pp", "schedule": "1f1b", "microbatches": 2}},
        None,
        lambda c, spec: c.stream == "first" and "pipeline" in spec,
    ),
    "experts beside a stream that is cut": Found(
        Choices(experts=2),
        layout({"d": 2}, "d_model d"),
        None,
        lambda c, spec: c.experts > 0 and cuts(spec, "d_model"),
    ),
    "experts that cannot read off a size, in a stage": Found(
        Choices(layers=2, experts=2, second="activation"),
        layout({"pp": 2}) | {"pipeline": {"axis": "pp", "schedule": "1f1b", "microbatches": 2}},
        None,
        lambda c, spec: c.experts > 0 and c.second != "alike" and "pipeline" in spec,
    ),
    "labels that are put together, counted beside stages": Found(
        Choices(layers=2, shift="cat labels"),
        layout({"pp": 2, "dp": 2}, "batch dp") | {"pipeline": {"axis": "pp", "schedule": "1f1b", "microbatches": 2}},
        "the class that holds the stages has no axis of the mesh, and counting labels cuts some over one",
        lambda c, spec: c.shift == "cat labels" and "pipeline" in spec and cuts(spec, "batch"),
    ),
    "a scale for each head, the heads of each rank in one group": Found(
        Choices(kv_heads=2, about="head scale"),
        layout({"tp": 2}, "heads tp"),
        None,
        lambda c, spec: c.about == "head scale" and c.group > 1 and cuts(spec, "heads", "kv_heads"),
    ),
}


def known(choices: Choices, document: Document) -> bool:
    """Whether a draw is like one that fails for a reason that is known."""
    return any(f.reason is not None and f.like(choices, document) for f in FOUND.values())
