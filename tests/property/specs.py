"""Layouts that fit a model: meshes of up to four ranks, every rule with a dimension that is there and divides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from choices import Choices
from hypothesis import strategies as st

from graphpar.language.schedules import SCHEDULES

ROWS, LENGTH = 4, 12  # of every batch: what data and sequence axes divide

Document = dict[str, Any]
Rules = list[Document]


def document(mesh: dict[str, int], layout: Rules, c: Choices, regions: Rules | None = None) -> Document:
    """The spec as YAML would give it, with padding where the vocabulary needs it."""
    spec: Document = {"version": 1, "mesh": mesh, "layout": layout}
    if c.mlp == "matrices":  # nothing recognises what two products make of the stream
        spec["names"] = {"up": "d_model d_ff", "down": "d_ff d_model"}
    if regions:
        spec["regions"] = regions
    ways = [n for rule in layout if "vocab" in rule for n in [_ranks(rule["vocab"], mesh)]]
    return spec | ({"uneven": {"vocab": "pad"}} if any(c.vocab % n for n in ways) else {})


def _ranks(axes: str | Sequence[str], mesh: dict[str, int]) -> int:
    ranks = 1
    for axis in [axes] if isinstance(axes, str) else axes:
        ranks *= mesh[axis]
    return ranks


def cut_by(c: Choices, n: int) -> list[str]:
    """The dimensions of a model that n ranks can share."""
    heads = c.heads if c.kv_heads == 1 else c.kv_heads
    whole = {"heads": heads % n == 0, "d_ff": c.hidden % n == 0, "vocab": True, "seq": LENGTH % n == 0}
    return [name for name, divides in whole.items() if divides]


@st.composite
def tensor_rules(draw: st.DrawFn, c: Choices, axis: str, n: int) -> Rules:
    """Rules for one axis: the usual ones in some order, perhaps not all, and tokens last."""
    known = [name for name in cut_by(c, n) if name != "seq"]
    wanted = draw(st.permutations(known))
    kept = wanted[: draw(st.integers(1, len(wanted)))] if draw(st.booleans()) else known
    rules: Rules = [{name: axis} for name in kept]
    return rules + ([{"seq": axis}] if LENGTH % n == 0 and draw(st.booleans()) else [])


@st.composite
def tensor(draw: st.DrawFn, c: Choices) -> Document:
    """Tensor parallelism, perhaps with sequence parallelism."""
    n = draw(st.sampled_from((2, 2, 3, 4)))
    rules = draw(tensor_rules(c, "tp", n))
    return document({"tp": n}, rules, c, draw(regions(c, rules)))


@st.composite
def data(draw: st.DrawFn, c: Choices) -> Document:
    """Data parallelism over one axis or two; the second may cut the sequence."""
    if draw(st.booleans()):
        return document({"dp": draw(st.sampled_from((2, 4)))}, [{"batch": "dp"}], c)
    way = draw(st.sampled_from(("both", "apart", "seq")))
    rules: Rules = {
        "both": [{"batch": ["dp", "fs"]}],
        "apart": [{"batch": "fs"}, {"batch": "dp"}],
        "seq": [{"batch": "dp"}, {"seq": "fs"}],
    }[way]
    return document({"dp": 2, "fs": 2}, rules, c)


@st.composite
def both(draw: st.DrawFn, c: Choices) -> Document:
    """Data and tensor parallelism."""
    rules = draw(tensor_rules(c, "tp", 2))
    place = draw(st.integers(0, len(rules)))
    mesh = draw(st.sampled_from(({"dp": 2, "tp": 2}, {"tp": 2, "dp": 2}, {"dp": 1, "tp": 2}, {"dp": 2, "tp": 1})))
    return document(mesh, [*rules[:place], {"batch": "dp"}, *rules[place:]], c, draw(regions(c, rules)))


@st.composite
def stream(draw: st.DrawFn, c: Choices) -> Document:
    """The residual stream is cut, alone or next to tensor parallelism on an axis of its own."""
    if draw(st.booleans()):
        return document({"d": draw(st.sampled_from((2, 4)))}, [{"d_model": "d"}], c)
    rules = [rule for rule in draw(tensor_rules(c, "tp", 2)) if rule != {"seq": "tp"} or draw(st.booleans())]
    place = draw(st.sampled_from((0, len(rules))))
    return document({"tp": 2, "d": 2}, [*rules[:place], {"d_model": "d"}, *rules[place:]], c)


@st.composite
def split(draw: st.DrawFn, c: Choices) -> Document:
    """More ranks than key heads: those heads on one axis, the queries of each on another."""
    axes = ["tp", "tq"]
    rules: Rules = [{"kv_heads": "tp"}, {"q_group": "tq"}]
    rules += [{"d_ff": [*axes]}] if c.hidden % 4 == 0 else [{"d_ff": "tp"}]
    return document({"tp": 2, "tq": 2}, [*rules, {"vocab": draw(st.sampled_from(([*axes], "tp", "tq")))}], c)


@st.composite
def staged(draw: st.DrawFn, c: Choices) -> Document:
    """A pipeline, alone or next to data or tensor parallelism; now and then with forwards that run again."""
    ranks = draw(st.sampled_from([n for n in (1, 2, 2, 3) if n <= c.layers]))
    beside = draw(st.sampled_from((None, "dp", "tp"))) if ranks < 3 else None
    most = ROWS // 2 if beside == "dp" else ROWS  # microbatches: a row is not cut
    possible = [
        {"schedule": name, "microbatches": m, **({"virtual": v} if v != known.usual else {})}
        for name, known in SCHEDULES.items()
        for v in (1, 2, 3)
        if known.least <= v <= known.most and ranks * v <= c.layers
        for m in ((1, 2, 4) if c.balance == "nothing" else (1,))  # that loss is one of a whole batch
        if m <= most
        if (not known.rounds or m % ranks == 0) and (not known.filled or m >= ranks * v)
    ]
    rules: Rules = {None: [], "dp": [{"batch": "dp"}], "tp": draw(tensor_rules(c, "tp", 2))}[beside]
    mesh = {"pp": ranks, **({beside: 2} if beside else {})}
    pipeline = draw(st.sampled_from(possible))
    again: Rules = [{"at": "blocks", "recompute": draw(st.sampled_from((True, "selective")))}]
    wanted = draw(st.booleans()) and pipeline["schedule"] in ("gpipe", "1f1b", "interleaved")
    return document(mesh, rules, c, again if wanted else None) | {"pipeline": {"axis": "pp", **pipeline}}


@st.composite
def regions(draw: st.DrawFn, c: Choices, rules: Rules) -> Rules:
    """Now and then one of several blocks that is laid out differently."""
    parts = {"d_ff": "mlp", "heads": "attn"}
    possible = [(parts[name], name) for rule in rules for name in rule if name in parts]
    if c.layers == 1 or c.shared != "nothing" or not possible or draw(st.integers(0, 2)):
        return []
    at, name = draw(st.sampled_from(possible))
    index = draw(st.sampled_from((0, -1)))
    return [{"at": f"blocks[{index}].{at}", "layout": [{name: "none"}], "why": "whole here"}]


@st.composite
def mixture(draw: st.DrawFn, c: Choices) -> Document:
    """Experts on an axis of their own, beside another or not, or on one that cuts the batch for all else."""
    n = draw(st.sampled_from([n for n in (2, 2, 4) if c.experts % n == 0]))
    inside = draw(tensor_rules(c, "tp", 2)) if n == 2 and draw(st.booleans()) else []
    way = draw(st.sampled_from(("own", "own", "beside", "alias", "same tokens")))
    mesh: dict[str, Any] = {"ep": n}
    rules: Rules = [{"batch": "ep"}]
    match way:
        case "beside" if n == 2 and not inside:
            mesh, rules = {"dp": 2, "ep": n}, [{"batch": ["dp", "ep"]}]
        case "alias":
            mesh, rules = {"dp": n, "aliases": {"ep": "dp"}}, [{"batch": "dp"}]
        case "same tokens":
            rules = []
    moe = {"experts": "ep"} | ({"dispatch": "allgather"} if rules and draw(st.integers(0, 3)) == 0 else {})
    found = document({**mesh, **({"tp": 2} if inside else {})}, [*rules, *inside], c)
    return found | {"moe": moe}


def layouts(c: Choices) -> st.SearchStrategy[Document]:
    """A layout for a model."""
    ways = [tensor(c), data(c), both(c), both(c), stream(c)]
    if c.experts:
        ways += [mixture(c)] * len(ways)
    return st.one_of(*ways, *([split(c)] if c.kv_heads % 2 == 0 and c.group % 2 == 0 else []))
