"""Mistakes of plan.json and init.json: where parts lie, what runs, and how values start."""

from typing import Any

from tools.mutants.mutant import Json, Mutant

NORM, KEY = "blocks.0.ln_1.weight", "blocks.0.attn.key.weight"


def _loop(plan: Any) -> Any:
    return next(entry for entry in plan["collectives"] if "loop" in entry)["bodies"][0]


def _last_draw_is_wider(tape: Any) -> None:
    draw = next(op for op in reversed(tape["ops"]) if "normal_" in op["op"] or "uniform_" in op["op"])
    draw["args"][-1] *= 1.5


def _heads_last(plan: Any) -> None:
    """The rows of the keys are taken to be d_head by heads."""
    plan["parameters"][KEY]["dims"] = [[[[16, []], [2, ["tp"]]]], [[[32, []]]]]


def _thirds(plan: Any) -> None:
    """Packed q, k and v are cut as if they were one."""
    plan["parameters"]["blocks.0.attn.in_proj_weight"]["dims"] = [[[[96, ["tp"]]]], [[[32, []]]]]


def _tokens_over_data(plan: Any) -> None:
    """Each data rank gets a part of every row."""
    for entry in plan["inputs"]:
        entry["cut"] = {"1": entry["cut"]["0"]}


def _json(name: str, kind: str, build: str, change: Any, file: str = "plan.json", **facts: Any) -> Mutant:
    return Mutant(name, kind, build, (Json(change, file),), **facts)


PLANS = (
    _json(
        "a collective more than runs",
        "plan",
        "gpt dp2xtp2+sp",
        lambda p: p["collectives"].append(p["collectives"][0]),
        spoils="collectives",
    ),
    _json(
        "a collective fewer than runs", "plan", "gpt dp2xtp2+sp", lambda p: p["collectives"].pop(), spoils="collectives"
    ),
    _json(
        "another number of bytes",
        "plan",
        "gpt dp2xtp2",
        lambda p: p["collectives"][0].update(forward_elements="32*batch*seq"),
        spoils="collectives",
    ),
    _json("another order", "plan", "gpt dp2xtp2+sp", lambda p: _loop(p).reverse(), spoils="collectives"),
    _json(
        "another gradient sum",
        "plan",
        "gpt dp2xtp2+sp",
        lambda p: p["parameters"][NORM].update(grad_sum=["dp"]),
        spoils="collectives",
    ),
    _json("no such parameter", "plan", "gpt dp2xtp2", lambda p: p["parameters"].pop(NORM), spoils=NORM),
    _json(
        "a row of tokens on each data rank",
        "loading",
        "gpt dp2xtp2",
        _tokens_over_data,
        spoils="tok_emb|returned value",
    ),
    _json("heads in another order", "loading", "gpt dp2xtp2", _heads_last, spoils="key|att|attn"),
    _json("q, k and v cut as one", "loading", "tied tp2", _thirds, spoils="qkv|attn"),
    _json("wider initial values", "loading", "gpt dp2xtp2", _last_draw_is_wider, "init.json", spoils="pos_emb"),
)
